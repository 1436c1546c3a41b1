package wshard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sort"
	"strings"
)

// The identity of an episode: a hash of the hashes of its blocks, independent of compression. Implements "Identity" of
// docs/specs/wshard.md.

var provenanceMembers = [...]string{
	"end_state", "epoch", "first_seq", "last_seq", "prev_identity", "run_id", "source", "start_state", "v",
}

// Identity returns 64 hex digits that name the content of a file. Compression, alignment and block order do not change
// them. It reads and hashes every block; an error of the kind Corrupt if a sealed file does not match its seal.
func Identity(path string) (string, error) {
	file, err := openContainer(path, Options{CacheBytes: -1})
	if err != nil {
		return "", err
	}
	defer file.Close()
	return file.Identity()
}

// Identity returns the identity of an open file; see the function of that name.
func (f *File) Identity() (string, error) {
	hashes := map[string]any{}
	for _, entry := range f.entries {
		if entry.Name == metaIdentity {
			continue
		}
		reader, err := f.Block(entry.Name)
		if err != nil {
			return "", err
		}
		hasher := sha256.New()
		err = reader.pieces(func(piece []byte) error {
			hasher.Write(piece)
			return nil
		})
		if err != nil {
			return "", err
		}
		hashes[entry.Name] = hex.EncodeToString(hasher.Sum(nil))
	}
	computed, err := sealBytes(hashes)
	if err != nil {
		return "", err
	}
	if f.Has(metaIdentity) {
		seal, err := f.readJSON(metaIdentity)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(seal, computed) {
			return "", corruptf("the blocks of the file are not those that were sealed")
		}
	}
	return sha256Hex(computed), nil
}

// IsSealed reports whether the file has a seal. Identity verifies it.
func (f *File) IsSealed() bool { return f.Has(metaIdentity) }

// JoinedIdentity returns the identity of an episode in several files, from those of its chunks, in order.
func JoinedIdentity(identities []string) (string, error) {
	if identities == nil {
		identities = []string{}
	}
	data, err := encodeJSON(map[string]any{"chunks": identities, "v": 1})
	return sha256Hex(data), err
}

// sealBytes returns the content of meta/identity, from the SHA-256 of each other block.
func sealBytes(hashes map[string]any) ([]byte, error) {
	return encodeJSON(map[string]any{"entries": hashes, "leaf": "sha256", "v": 1})
}

func checkProvenance(provenance map[string]any) error {
	differing := []string{}
	known := map[string]bool{}
	for _, name := range provenanceMembers {
		known[name] = true
		if !has(provenance, name) {
			differing = append(differing, name)
		}
	}
	for name := range provenance {
		if !known[name] {
			differing = append(differing, name)
		}
	}
	sort.Strings(differing)
	if len(differing) > 0 {
		return badInputf("the provenance has missing or unknown members: %s", strings.Join(differing, ", "))
	}
	return nil
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func sha256File(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", explainOS(err, path)
	}
	defer file.Close()
	hasher := sha256.New()
	if _, err := io.Copy(hasher, file); err != nil {
		return "", explainOS(err, path)
	}
	return hex.EncodeToString(hasher.Sum(nil)), nil
}
