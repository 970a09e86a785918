package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
)

// Override is a setting from the command line.
type Override struct {
	Key    string // path of the setting, such as broker.grpc_addr
	Value  string
	Source string // what the user wrote: --broker-addr
}

// Load fills into, which holds the defaults, from the file at path, from the environment and from overrides; a
// later one wins. An empty path stands for no file. The variable of a key is the prefix, an underscore, and the
// key in capitals with underscores for dots: DATABUS_AGENT_BROKER_GRPC_ADDR. An empty variable is as good as none;
// variables of that prefix that name no key are ignored, since container platforms make such. The error holds
// everything that is wrong, each thing as an *Error.
func Load[T any](path, envPrefix string, into *T, overrides ...Override) error {
	l := &loader{origin: map[string]string{}, file: path}
	root := reflect.ValueOf(into).Elem()
	if path != "" {
		if err := l.readFile(path, root); err != nil {
			return err
		}
	}
	if envPrefix != "" {
		l.readEnv(envPrefix, root)
	}
	for _, o := range overrides {
		l.override(o, root)
	}
	if len(l.errs) == 0 {
		l.validate("", root)
	}
	return errors.Join(l.errs...)
}

// Error is one thing that is wrong with a setting.
type Error struct {
	Where string // agent.yaml:3:7, the environment variable or the flag; empty: the default
	Key   string // path of the setting; empty: the whole file
	Text  string // what is wrong and what is allowed
}

func (e *Error) Error() string {
	var parts []string
	for _, p := range []string{e.Where, e.Key, e.Text} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Invalid returns the error for a Validate method to return: key, relative to the struct that is being checked,
// and what is allowed. Load adds where the setting came from. Several go together by errors.Join.
func Invalid(key, format string, args ...any) error {
	return &Error{Key: key, Text: fmt.Sprintf(format, args...)}
}

type loader struct {
	file   string
	origin map[string]string // key → where its value came from
	errs   []error
}

func (l *loader) fail(where, key, format string, args ...any) {
	l.errs = append(l.errs, &Error{Where: where, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (l *loader) readFile(path string, root reflect.Value) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Where: path, Text: "there is no such file; create it, or name another with --config"}
	}
	if err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	l.parse(raw, root)
	return nil
}

func (l *loader) readEnv(prefix string, root reflect.Value) {
	eachLeaf("", root, func(key string, v reflect.Value) {
		name := prefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
		text := os.Getenv(name)
		if text == "" {
			return
		}
		if err := setText(v, text); err != nil {
			l.fail(name, key, "%v", err)
			return
		}
		l.origin[key] = name
	})
}

func (l *loader) override(o Override, root reflect.Value) {
	found := false
	var keys []string
	eachLeaf("", root, func(key string, v reflect.Value) {
		keys = append(keys, key)
		if key != o.Key {
			return
		}
		found = true
		if err := setText(v, o.Value); err != nil {
			l.fail(o.Source, key, "%v", err)
			return
		}
		l.origin[key] = o.Source
	})
	if !found {
		l.fail(o.Source, o.Key, "%s", unknownKey(o.Key, keys))
	}
}

// validate calls the Validate methods from the inside out, so that an outer one may rely on the inner ones.
func (l *loader) validate(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			l.validate(path, v.Elem())
		}
		return
	case reflect.Struct:
		for _, f := range fields(v) {
			l.validate(join(path, f.key), f.value)
		}
	case reflect.Slice:
		for i := range v.Len() {
			l.validate(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	}
	if !v.CanAddr() {
		return
	}
	if c, ok := v.Addr().Interface().(interface{ Validate() error }); ok {
		l.refused(path, c.Validate())
	}
}

// refused records what a Validate method returned, under the path of what it checked.
func (l *loader) refused(path string, err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			l.refused(path, one)
		}
		return
	}
	e := &Error{Key: path, Text: err.Error()}
	if given, ok := errors.AsType[*Error](err); ok {
		e = &Error{Key: join(path, given.Key), Text: given.Text}
	}
	e.Where = l.whence(e.Key)
	l.errs = append(l.errs, e)
}

// whence says where a setting, or the nearest one around it, came from.
func (l *loader) whence(key string) string {
	for key != "" {
		if where, ok := l.origin[key]; ok {
			return where
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return l.file
}

func join(path, key string) string {
	switch {
	case path == "":
		return key
	case key == "":
		return path
	}
	return path + "." + key
}
