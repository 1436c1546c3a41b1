#!/bin/sh
# Tests the package and builds its command into the directory $1. Uses the libraries of Debian packages if they are
# installed, and otherwise those that go.mod names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
debian=/usr/share/gocode
export WSHARD_GOLDEN="${WSHARD_GOLDEN:-$here/../../tests/golden/wshard}"
export WSHARD_VECTORS="${WSHARD_VECTORS:-$here/../../../shared/vectors/wshard}"
if [ -d "$debian/src/github.com/klauspost/compress/zstd" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir "$work/src"
	cp -R "$here" "$work/src/wshard"
	export GO111MODULE=off GOFLAGS= GOPATH="$work:$debian"
	cd "$work/src/wshard"
else
	export GOFLAGS=-mod=mod
	cd "$here"
fi
go vet ./...
go test ./...
go build -o "$out/wshard" ./cmd/wshard
echo "built $out/wshard"
