package render

import (
	"fmt"
	"strconv"
	"strings"
)

// TemplateHelp lists what a template may hold.
const TemplateHelp = `%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %v value, %h headers as name=value,…, %K and %V lengths, %% a percent sign; \n, \t, \r, \0 and \\ are understood`

// part of a template: fixed text, or the verb of a field.
type part struct {
	text string
	verb byte
}

func parseTemplate(template string) ([]part, error) {
	var parts []part
	var fixed strings.Builder
	for i := 0; i < len(template); i++ {
		c := template[i]
		if (c == '%' || c == '\\') && i+1 == len(template) {
			return nil, fmt.Errorf("the format ends after %q; it may hold %s", string(c), TemplateHelp)
		}
		switch c {
		case '\\':
			i++
			escaped, ok := escapes[template[i]]
			if !ok {
				return nil, fmt.Errorf(`the format has an unknown \%c; it may hold %s`, template[i], TemplateHelp)
			}
			fixed.WriteByte(escaped)
		case '%':
			i++
			if template[i] == '%' {
				fixed.WriteByte('%')
				continue
			}
			if !strings.ContainsRune("tpoTkvhKV", rune(template[i])) {
				return nil, fmt.Errorf("the format has an unknown %%%c; it may hold %s", template[i], TemplateHelp)
			}
			parts = append(parts, part{text: fixed.String()}, part{verb: template[i]})
			fixed.Reset()
		default:
			fixed.WriteByte(c)
		}
	}
	return append(parts, part{text: fixed.String()}), nil
}

var escapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '0': 0, '\\': '\\'}

func appendTemplate(dst []byte, parts []part, msg Message) []byte {
	for _, p := range parts {
		switch p.verb {
		case 0:
			dst = append(dst, p.text...)
		case 't':
			dst = append(dst, msg.Topic...)
		case 'p':
			dst = strconv.AppendInt(dst, int64(msg.Partition), 10)
		case 'o':
			dst = strconv.AppendInt(dst, msg.GetOffset(), 10)
		case 'T':
			dst = strconv.AppendInt(dst, msg.GetTimestamp().AsTime().UnixMilli(), 10)
		case 'k':
			dst = append(dst, msg.GetKey()...)
		case 'v':
			dst = append(dst, msg.GetValue()...)
		case 'K':
			dst = strconv.AppendInt(dst, length(msg.Key), 10)
		case 'V':
			dst = strconv.AppendInt(dst, length(msg.Value), 10)
		case 'h':
			for i, h := range msg.GetHeaders() {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = append(append(append(dst, h.GetKey()...), '='), h.GetValue()...)
			}
		}
	}
	return dst
}

// length is -1 where there is nothing, which is not the same as an empty value.
func length(b []byte) int64 {
	if b == nil {
		return -1
	}
	return int64(len(b))
}
