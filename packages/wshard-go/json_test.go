package wshard

import (
	"math/big"
	"strings"
	"testing"
)

// If these tests fail, metadata is rewritten with other bytes, which changes identities, or bad metadata is accepted.

func TestCanonicalForm(t *testing.T) {
	for text, want := range map[string]string{
		`{"b":1,"a":30.0,"ä":3e1,"z":[ ] }`:                    `{"a":30.0,"b":1,"z":[],"ä":30.0}`,
		`{"a":0.0001,"b":0.00001,"c":1e16}`:                    `{"a":0.0001,"b":1e-05,"c":1e+16}`,
		`{"a":1234567890123456.0,"b":-0.0,"c":-0}`:             `{"a":1234567890123456.0,"b":-0.0,"c":0}`,
		`{"a":9007199254740993,"b":18446744073709551616}`:      `{"a":9007199254740993,"b":18446744073709551616}`,
		`{"a":"\u00e9\u0001\ud83d\ude00\/\"\\\n\u007f"}`:       "{\"a\":\"é\\u0001😀/\\\"\\\\\\n\x7f\"}",
		`{"a":[true,false,null,{"b":1.7976931348623157e308}]}`: `{"a":[true,false,null,{"b":1.7976931348623157e+308}]}`,
	} {
		value, err := decodeObject([]byte(text), "it")
		if err != nil {
			t.Fatal(text, err)
		}
		if found, err := encodeJSON(value); err != nil || string(found) != want {
			t.Errorf("%s became %s: %v", text, found, err)
		}
	}
	found, err := encodeJSON(map[string]any{"a": []int{1}, "b": float32(0.5), "c": map[string]string{"x": "y"}, "d": uint8(3), "e": big.NewInt(7)})
	if err != nil || string(found) != `{"a":[1],"b":0.5,"c":{"x":"y"},"d":3,"e":7}` {
		t.Errorf("%s %v", found, err)
	}
}

func TestRefusedJSON(t *testing.T) {
	deep := func(count int) string {
		return `{"a":` + strings.Repeat("[", count) + "1" + strings.Repeat("]", count) + "}"
	}
	if _, err := decodeObject([]byte(deep(31)), "it"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		``, `[]`, `1`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1,"a":2}`, `{"a":1}x`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":1e999}`,
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":-}`, `{"a":1e}`, `{"a":"\ud800"}`, `{"a":"\ud800\u0041"}`, `{"a":"\udc00"}`,
		`{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"\n\"}", "{\"a\":\"\xff\"}", "\ufeff{}", `{"a":tru}`, `{'a':1}`, `{"a":[1,]}`,
		deep(32), deep(50_000), `{"a":1` + strings.Repeat("0", 309) + `}`, `{"a":` + strings.Repeat("9", 5000) + `}`,
	} {
		if _, err := decodeObject([]byte(text), "it"); err == nil {
			t.Errorf("%.60s was accepted", text)
		}
	}
}
