package wshard

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Values of steps as bytes. A value has exactly the type of its channel; only int is converted, if it fits.

// bytesOf returns the bytes of a value, or the reason why it does not fit.
func (w *StreamWriter) bytesOf(value any, spec *ChannelSpec, width int) ([]byte, string) {
	dtype, data := U8, []byte(nil)
	switch value := value.(type) {
	case *Array:
		if !sameShape(value.Shape, spec.Shape) {
			return nil, fmt.Sprintf("has the shape %v instead of %v", value.Shape, spec.Shape)
		}
		dtype, data = value.DType, value.Data
	case []float32:
		dtype, data = F32, bytesOf(value)
	case []float64:
		dtype, data = F64, bytesOf(value)
	case []uint8:
		dtype, data = U8, value
	case []int64:
		dtype, data = I64, bytesOf(value)
	case []int32:
		dtype, data = I32, bytesOf(value)
	case []int16:
		dtype, data = I16, bytesOf(value)
	case []int8:
		dtype, data = I8, bytesOf(value)
	case []uint64:
		dtype, data = U64, bytesOf(value)
	case []uint32:
		dtype, data = U32, bytesOf(value)
	case []uint16:
		dtype, data = U16, bytesOf(value)
	case []bool:
		dtype, data = Bool, bytesOf(value)
	default:
		if len(spec.Shape) > 0 {
			return nil, fmt.Sprintf("is a %T instead of a slice or *Array of %v", value, spec.Shape)
		}
		return w.scalarBytes(value, spec)
	}
	isHalf := dtype == U16 && (spec.DType == F16 || spec.DType == BF16)
	if dtype != spec.DType && !isHalf {
		return nil, fmt.Sprintf("has the dtype %s instead of %s", dtype, spec.DType)
	}
	if len(data) != width {
		return nil, fmt.Sprintf("has %d bytes instead of %d", len(data), width)
	}
	if dtype == Bool && !isBoolean(data) {
		return nil, "has booleans other than 0 and 1"
	}
	return data, ""
}

// scalarBytes encodes a number into the scratch buffer, which keeps its bytes until the next step.
func (w *StreamWriter) scalarBytes(value any, spec *ChannelSpec) ([]byte, string) {
	dtype, bits := U8, uint64(0)
	switch value := value.(type) {
	case float32:
		dtype, bits = F32, uint64(math.Float32bits(value))
	case float64:
		dtype, bits = F64, math.Float64bits(value)
	case int64:
		dtype, bits = I64, uint64(value)
	case int32:
		dtype, bits = I32, uint64(value)
	case int16:
		dtype, bits = I16, uint64(value)
	case int8:
		dtype, bits = I8, uint64(value)
	case uint64:
		dtype, bits = U64, value
	case uint32:
		dtype, bits = U32, uint64(value)
	case uint16:
		dtype, bits = U16, uint64(value)
		if spec.DType == F16 || spec.DType == BF16 {
			dtype = spec.DType
		}
	case uint8:
		dtype, bits = U8, uint64(value)
	case bool:
		dtype = Bool
		if value {
			bits = 1
		}
	case int:
		if !fitsInteger(value, spec.DType) {
			return nil, fmt.Sprintf("has the value %d, which %s cannot hold", value, spec.DType)
		}
		dtype, bits = spec.DType, uint64(value)
	default:
		return nil, fmt.Sprintf("is a %T, which is not a number", value)
	}
	if dtype != spec.DType {
		return nil, fmt.Sprintf("has the dtype %s instead of %s", dtype, spec.DType)
	}
	var encoded [8]byte
	binary.LittleEndian.PutUint64(encoded[:], bits)
	start := len(w.scratch)
	w.scratch = append(w.scratch, encoded[:dtype.Size()]...)
	return w.scratch[start:], ""
}

func fitsInteger(value int, dtype DType) bool {
	bits := uint(8 * dtype.Size())
	switch dtype {
	case I8, I16, I32, I64:
		return value>>(bits-1) == 0 || value>>(bits-1) == -1
	case U8, U16, U32, U64:
		return value >= 0 && (bits == 64 || value>>bits == 0)
	}
	return false
}

func (w *StreamWriter) putSeries(step Step, row int) {
	word := binary.LittleEndian
	for number := len(w.channels); number < len(w.parts); number++ {
		at := w.record[w.starts[number]+row*w.widths[number]:]
		switch w.parts[number].Block {
		case blockReward:
			word.PutUint32(at, math.Float32bits(step.Reward))
		case blockDone:
			at[0] = flagByte(step.Done)
		case blockTruncated:
			at[0] = flagByte(step.Truncated)
		case blockTimestamps:
			word.PutUint64(at, uint64(step.TimestampNS))
		}
	}
}

func flagByte(value bool) byte {
	if value {
		return 1
	}
	return 0
}
