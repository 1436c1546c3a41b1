package wshard

import (
	"math"
	"math/bits"
	"unsafe"
)

// DType is an element type, by its name in files.
type DType string

// The 13 element types of the format.
const (
	F32  DType = "f32"
	F64  DType = "f64"
	F16  DType = "f16"
	BF16 DType = "bf16"
	I64  DType = "i64"
	I32  DType = "i32"
	I16  DType = "i16"
	I8   DType = "i8"
	U64  DType = "u64"
	U32  DType = "u32"
	U16  DType = "u16"
	U8   DType = "u8"
	Bool DType = "bool"
)

// Size returns the number of bytes of one element, and 0 for a type that the format does not have.
func (d DType) Size() int {
	switch d {
	case F64, I64, U64:
		return 8
	case F32, I32, U32:
		return 4
	case F16, BF16, I16, U16:
		return 2
	case I8, U8, Bool:
		return 1
	}
	return 0
}

// Element is a Go type whose values can be stored. F16 and BF16 are uint16 with the same bits.
type Element interface {
	float32 | float64 | int64 | int32 | int16 | int8 | uint64 | uint32 | uint16 | uint8 | bool
}

func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int64:
		return I64
	case int32:
		return I32
	case int16:
		return I16
	case int8:
		return I8
	case uint64:
		return U64
	case uint32:
		return U32
	case uint16:
		return U16
	case bool:
		return Bool
	}
	return U8
}

// Array is a block of rows in C order. The first axis is time; Data holds little-endian elements.
type Array struct {
	DType DType
	Shape []int
	Data  []byte
}

// NewArray returns an array over the values, without a copy on little-endian systems. The shape of one step follows
// the values, so NewArray(x, 4, 3) has len(x)/12 rows. Use As for F16 and BF16.
func NewArray[T Element](values []T, stepShape ...int) *Array {
	step := product(stepShape)
	rows := 0
	if step > 0 {
		rows = len(values) / step
	}
	return &Array{dtypeOf[T](), append([]int{rows}, stepShape...), bytesOf(values)}
}

// As returns the same bytes with another element type of the same size, such as BF16 for an array of uint16.
func (a *Array) As(dtype DType) *Array { return &Array{dtype, a.Shape, a.Data} }

// Len returns the number of rows.
func (a *Array) Len() int {
	if a == nil || len(a.Shape) == 0 {
		return 0
	}
	return a.Shape[0]
}

// StepShape returns the shape of one row.
func (a *Array) StepShape() []int {
	if len(a.Shape) == 0 {
		return nil
	}
	return a.Shape[1:]
}

// Clone returns a copy that does not share memory with a mapped file.
func (a *Array) Clone() *Array {
	return &Array{a.DType, append([]int{}, a.Shape...), append([]byte{}, a.Data...)}
}

// Values returns the elements as a slice: a view of the data where alignment and byte order allow it, else a copy.
// T must be the type of the array; F16 and BF16 are read as uint16.
func Values[T Element](a *Array) ([]T, error) {
	want := dtypeOf[T]()
	if a.DType != want && !(want == U16 && (a.DType == F16 || a.DType == BF16)) {
		return nil, badInputf("an array of %s cannot be read as %s", a.DType, want)
	}
	size := want.Size()
	if len(a.Data)%size != 0 {
		return nil, badInputf("%d bytes are not a multiple of %s", len(a.Data), a.DType)
	}
	if len(a.Data) == 0 {
		return []T{}, nil
	}
	if want == Bool && !isBoolean(a.Data) {
		return nil, badInputf("the array of bool has bytes other than 0 and 1")
	}
	first := unsafe.Pointer(&a.Data[0])
	if isLittleEndian && uintptr(first)%uintptr(size) == 0 {
		return unsafe.Slice((*T)(first), len(a.Data)/size), nil
	}
	out := make([]T, len(a.Data)/size)
	copy(rawBytes(out), a.Data)
	if !isLittleEndian {
		swapBytes(rawBytes(out), size)
	}
	return out, nil
}

// Float64s returns every element as float64. 64-bit integers beyond 2^53 are rounded.
func (a *Array) Float64s() ([]float64, error) {
	switch a.DType {
	case F64:
		return convert(a, func(v float64) float64 { return v })
	case F32:
		return convert(a, func(v float32) float64 { return float64(v) })
	case F16:
		return convert(a, halfToFloat)
	case BF16:
		return convert(a, func(v uint16) float64 { return float64(math.Float32frombits(uint32(v) << 16)) })
	case I64:
		return convert(a, func(v int64) float64 { return float64(v) })
	case I32:
		return convert(a, func(v int32) float64 { return float64(v) })
	case I16:
		return convert(a, func(v int16) float64 { return float64(v) })
	case I8:
		return convert(a, func(v int8) float64 { return float64(v) })
	case U64:
		return convert(a, func(v uint64) float64 { return float64(v) })
	case U32:
		return convert(a, func(v uint32) float64 { return float64(v) })
	case U16:
		return convert(a, func(v uint16) float64 { return float64(v) })
	case U8:
		return convert(a, func(v uint8) float64 { return float64(v) })
	case Bool:
		return convert(a, func(v bool) float64 {
			if v {
				return 1
			}
			return 0
		})
	}
	return nil, badInputf("the element type %q does not exist", a.DType)
}

func convert[T Element](a *Array, to func(T) float64) ([]float64, error) {
	values, err := Values[T](a)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(values))
	for i, value := range values {
		out[i] = to(value)
	}
	return out, nil
}

func halfToFloat(half uint16) float64 {
	sign, exponent, fraction := 1.0, int(half>>10&31), float64(half&1023)
	if half>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// rowsOf interprets decoded bytes. A boolean of any non-zero byte becomes 1, in a copy.
func rowsOf(data []byte, dtype DType, rows int, shape []int) (*Array, error) {
	full := append([]int{rows}, shape...)
	size, ok := sizeOf(full, dtype)
	if !ok || size != len(data) {
		return nil, corruptf("%d bytes do not fill the shape %v of %s", len(data), full, dtype)
	}
	if size == 0 && !isPossible(full, dtype) {
		return nil, corruptf("the shape %v of %s is impossible", full, dtype)
	}
	if dtype == Bool && !isBoolean(data) {
		data = append([]byte{}, data...)
		for i, value := range data {
			if value != 0 {
				data[i] = 1
			}
		}
	}
	return &Array{dtype, full, data}, nil
}

// check reports data that do not fill the shape.
func (a *Array) check(what string) error {
	if a.DType.Size() == 0 {
		return badInputf("%s has the element type %q, which the format does not have", what, a.DType)
	}
	if size, ok := sizeOf(a.Shape, a.DType); !ok || size != len(a.Data) {
		return badInputf("%s has %d bytes, which do not fill the shape %v of %s", what, len(a.Data), a.Shape, a.DType)
	}
	if a.DType == Bool && !isBoolean(a.Data) {
		return badInputf("%s has booleans other than 0 and 1", what)
	}
	return nil
}

// isPossible reports whether other libraries can make an array of this shape: without its zeros, its size fits 63
// bits.
func isPossible(shape []int, dtype DType) bool {
	rest := make([]int, 0, len(shape))
	for _, size := range shape {
		if size != 0 {
			rest = append(rest, size)
		}
	}
	_, ok := sizeOf(rest, dtype)
	return ok
}

// sizeOf returns the number of bytes of a shape; false if that overflows.
func sizeOf(shape []int, dtype DType) (int, bool) {
	total := uint64(dtype.Size())
	overflows := false
	for _, size := range shape {
		if size < 0 {
			return 0, false
		}
		high, low := bits.Mul64(total, uint64(size))
		overflows = overflows || high != 0 || low > math.MaxInt64
		total = low
		if size == 0 {
			return 0, true
		}
	}
	return int(total), !overflows
}

func product(shape []int) int {
	total := 1
	for _, size := range shape {
		total *= size
	}
	return total
}

func isBoolean(data []byte) bool {
	for _, value := range data {
		if value > 1 {
			return false
		}
	}
	return true
}

var isLittleEndian = func() bool {
	word := uint16(1)
	return *(*byte)(unsafe.Pointer(&word)) == 1
}()

// bytesOf returns the little-endian bytes of the values, as a view where that is possible.
func bytesOf[T Element](values []T) []byte {
	raw := rawBytes(values)
	if isLittleEndian {
		return raw
	}
	out := append([]byte{}, raw...)
	swapBytes(out, dtypeOf[T]().Size())
	return out
}

func rawBytes[T Element](values []T) []byte {
	if len(values) == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}

func swapBytes(data []byte, size int) {
	for at := 0; at < len(data); at += size {
		for low, high := at, at+size-1; low < high; low, high = low+1, high-1 {
			data[low], data[high] = data[high], data[low]
		}
	}
}
