package wshard

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// EncodeJSON returns the canonical form of metadata, as it is stored and hashed.
func EncodeJSON(value map[string]any) ([]byte, error) { return encodeJSON(orEmpty(value)) }

// encodeJSON returns the canonical form, which defines identities: "JSON" of docs/specs/wshard.md. Beside the values
// of decodeObject it accepts all numbers of Go, and slices and maps of any type.
func encodeJSON(value any) ([]byte, error) {
	out, err := appendJSON(nil, value, 0)
	if err != nil {
		return nil, badInputf("the metadata cannot be written as JSON: %v", err)
	}
	if len(out) > maxJSONBytes {
		return nil, errorf(LimitExceeded, "the metadata has %d bytes; the most is %d", len(out), maxJSONBytes)
	}
	return out, nil
}

// sameJSON reports whether both values have the same canonical form, so that 1, 1.0 and true differ.
func sameJSON(left, right map[string]any) (bool, error) {
	one, err := encodeJSON(orEmpty(left))
	if err != nil {
		return false, err
	}
	two, err := encodeJSON(orEmpty(right))
	return bytes.Equal(one, two), err
}

func orEmpty(members map[string]any) map[string]any {
	if members == nil {
		return map[string]any{}
	}
	return members
}

func appendJSON(out []byte, value any, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", maxJSONDepth)
	}
	switch value := value.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return strconv.AppendBool(out, value), nil
	case string:
		return appendText(out, value)
	case int:
		return strconv.AppendInt(out, int64(value), 10), nil
	case int64:
		return strconv.AppendInt(out, value, 10), nil
	case float64:
		return appendFraction(out, value)
	case *big.Int:
		if value == nil || value.CmpAbs(float64End) >= 0 {
			return nil, fmt.Errorf("an integer does not fit in float64")
		}
		return value.Append(out, 10), nil
	case []any:
		return appendList(out, len(value), func(i int) any { return value[i] }, depth)
	case map[string]any:
		return appendObject(out, value, depth)
	}
	return appendOther(out, reflect.ValueOf(value), depth)
}

// appendOther encodes the types that callers pass beside those that the parser returns.
func appendOther(out []byte, value reflect.Value, depth int) ([]byte, error) {
	switch kind := value.Kind(); {
	case kind == reflect.Bool:
		return strconv.AppendBool(out, value.Bool()), nil
	case value.CanInt():
		return strconv.AppendInt(out, value.Int(), 10), nil
	case value.CanUint():
		return strconv.AppendUint(out, value.Uint(), 10), nil
	case value.CanFloat():
		return appendFraction(out, value.Float())
	case kind == reflect.String:
		return appendText(out, value.String())
	case kind == reflect.Slice || kind == reflect.Array:
		return appendList(out, value.Len(), func(i int) any { return value.Index(i).Interface() }, depth)
	case kind == reflect.Map && value.Type().Key().Kind() == reflect.String:
		members := make(map[string]any, value.Len())
		for _, name := range value.MapKeys() {
			members[name.String()] = value.MapIndex(name).Interface()
		}
		return appendObject(out, members, depth)
	}
	return nil, fmt.Errorf("a value of %s is not JSON", value.Type())
}

func appendList(out []byte, count int, item func(int) any, depth int) ([]byte, error) {
	out = append(out, '[')
	for i := 0; i < count; i++ {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendJSON(out, item(i), depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func appendObject(out []byte, members map[string]any, depth int) ([]byte, error) {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	sort.Strings(names)
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendText(out, name); err != nil {
			return nil, err
		}
		out = append(out, ':')
		if out, err = appendJSON(out, members[name], depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func appendText(out []byte, text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the string %.40q is not UTF-8", text)
	}
	const escaped, letters = "\b\t\n\f\r\"\\", `btnfr"\`
	out = append(out, '"')
	for i := 0; i < len(text); i++ {
		next := text[i]
		if at := strings.IndexByte(escaped, next); at >= 0 {
			out = append(out, '\\', letters[at])
		} else if next < 0x20 {
			out = append(out, fmt.Sprintf(`\u%04x`, next)...)
		} else {
			out = append(out, next)
		}
	}
	return append(out, '"'), nil
}

// appendFraction writes the shortest digits that read back as the same value, without an exponent from 1e-4 to 1e16.
func appendFraction(out []byte, value float64) ([]byte, error) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil, fmt.Errorf("%v is not a JSON number", value)
	}
	text := strconv.FormatFloat(value, 'e', -1, 64)
	exponent, err := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:])
	if err != nil {
		return nil, err
	}
	if exponent < -4 || exponent >= 16 {
		return append(out, text...), nil
	}
	text = strconv.FormatFloat(value, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return append(out, text...), nil
}
