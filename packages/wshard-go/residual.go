package wshard

// PackResidual packs the sign of the second difference of a signal of [T] or [T, D]: one bit for each step, 1 exactly
// if 2x[i] > x[i-1] + x[i+1] in float64, ceil(T/8) bytes for each dimension. The first and the last step are 0.
func PackResidual(signal *Array) ([]byte, error) {
	if len(signal.Shape) != 1 && len(signal.Shape) != 2 {
		return nil, badInputf("a residual needs a signal of [T] or [T, D], not of %v", signal.Shape)
	}
	values, err := signal.Float64s()
	if err != nil || len(values) == 0 {
		return []byte{}, err
	}
	length := signal.Shape[0]
	dimensions := len(values) / length
	width := (length + 7) / 8
	out := make([]byte, dimensions*width)
	for dimension := 0; dimension < dimensions; dimension++ {
		at := func(step int) float64 { return values[step*dimensions+dimension] }
		for step := 1; step < length-1; step++ {
			// The conversions forbid fused operations, which would round differently.
			if float64(float64(2*at(step))-at(step-1))-at(step+1) > 0 {
				out[dimension*width+step/8] |= 1 << (step % 8)
			}
		}
	}
	return out, nil
}

// UnpackResidual returns the bits of each dimension. The number of bytes determines the number of dimensions: some
// writers pack only the first.
func UnpackResidual(packed []byte, length int) ([][]bool, error) {
	width := (length + 7) / 8
	if length == 0 && len(packed) == 0 {
		return nil, nil
	}
	if width < 1 || len(packed)%width != 0 {
		return nil, corruptf("%d bytes are not residuals of %d steps, %d bytes each", len(packed), length, width)
	}
	out := make([][]bool, len(packed)/width)
	for dimension := range out {
		out[dimension] = make([]bool, length)
		for step := range out[dimension] {
			out[dimension][step] = packed[dimension*width+step/8]>>(step%8)&1 == 1
		}
	}
	return out, nil
}
