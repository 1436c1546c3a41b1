module wshard

go 1.19

require (
	github.com/cespare/xxhash/v2 v2.1.1
	github.com/klauspost/compress v1.15.12
	github.com/pierrec/lz4 v2.5.2+incompatible
)
