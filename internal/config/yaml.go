package config

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// parse reads a YAML document into root.
func (l *loader) parse(raw []byte, root reflect.Value) {
	// Duplicates are refused below, in the same words as everything else.
	file, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if se, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			l.fail(l.at(se.Token), "", "this is not YAML: %s", se.Message)
		} else {
			l.fail(l.file, "", "this is not YAML: %v", err)
		}
		return
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			l.fail(l.at(doc.Body.GetToken()), "", "a second document: only one is read; remove the ---")
			return
		}
		body = doc.Body
	}
	if body != nil && body.Type() != ast.NullType {
		l.bind("", body, root)
	}
}

const noValue = "has no value; give one, or remove it"

// at says where a token is.
func (l *loader) at(tk *token.Token) string {
	if tk == nil || tk.Position == nil {
		return l.file
	}
	return fmt.Sprintf("%s:%d:%d", l.file, tk.Position.Line, tk.Position.Column)
}

// bind sets v, the setting at path, from a node.
func (l *loader) bind(path string, node ast.Node, v reflect.Value) {
	where := l.at(node.GetToken())
	switch node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		l.fail(where, path, "anchors, aliases, tags and merges are not read; write the value out")
		return
	}
	if v.Kind() == reflect.Pointer && !isText(v) {
		p := reflect.New(v.Type().Elem())
		l.bind(path, node, p.Elem())
		v.Set(p)
		return
	}
	if node.Type() == ast.NullType {
		l.fail(where, path, noValue)
		return
	}
	if isText(v) || takesScalar(v.Type()) {
		l.bindScalar(where, path, node, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		l.bindStruct(where, path, node, v)
	case reflect.Map:
		l.bindMap(where, path, node, v)
	case reflect.Slice:
		l.bindSlice(where, path, node, v)
	default:
		l.fail(where, path, "a setting of type %s cannot be read", v.Type())
	}
}

func (l *loader) bindScalar(where, path string, node ast.Node, v reflect.Value) {
	text, ok := scalarText(node)
	if !ok {
		l.fail(where, path, "must be a single value, not %s", describe(node))
		return
	}
	if err := setScalar(v, text); err != nil {
		l.fail(where, path, "%v", err)
	}
}

// scalarText returns what was written, whatever type YAML takes it for: 08:30 and 1e3 stay as they are.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func describe(node ast.Node) string {
	switch node.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "keys with values"
	case ast.SequenceType:
		return "a list"
	}
	return "a single value"
}

// entries calls visit for each key of a mapping, and refuses one that comes twice.
func (l *loader) entries(where, path string, node ast.Node, visit func(key string, at *token.Token, value ast.Node)) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		l.fail(where, path, "must be keys with values, not %s", describe(node))
		return
	}
	seen := map[string]bool{}
	for _, entry := range values {
		at := entry.Key.GetToken()
		key, ok := scalarText(entry.Key)
		if !ok {
			l.fail(l.at(at), path, "a key must be a plain word")
			continue
		}
		if seen[key] {
			l.fail(l.at(at), join(path, key), "is given twice; remove one")
			continue
		}
		seen[key] = true
		if entry.Value == nil || entry.Value.Type() == ast.NullType {
			l.fail(l.at(at), join(path, key), noValue)
			continue
		}
		visit(key, at, entry.Value)
	}
}

func (l *loader) bindStruct(where, path string, node ast.Node, v reflect.Value) {
	known := map[string]reflect.Value{}
	var keys []string
	for _, f := range fields(v) {
		known[f.key] = f.value
		keys = append(keys, f.key)
	}
	l.entries(where, path, node, func(key string, at *token.Token, value ast.Node) {
		target, ok := known[key]
		if !ok {
			l.fail(l.at(at), join(path, key), "%s", unknownKey(key, keys))
			return
		}
		l.bind(join(path, key), value, target)
		l.origin[join(path, key)] = l.at(at)
	})
}

// bindMap replaces a map's defaults as a whole.
func (l *loader) bindMap(where, path string, node ast.Node, v reflect.Value) {
	out := reflect.MakeMap(v.Type())
	l.entries(where, path, node, func(key string, _ *token.Token, value ast.Node) {
		elem := reflect.New(v.Type().Elem()).Elem()
		l.bind(join(path, key), value, elem)
		out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), elem)
	})
	v.Set(out)
}

// bindSlice replaces a list's defaults as a whole.
func (l *loader) bindSlice(where, path string, node ast.Node, v reflect.Value) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		l.fail(where, path, "must be a list, not %s", describe(node))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		l.bind(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i))
	}
	v.Set(out)
}
