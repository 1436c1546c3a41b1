package wshard

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The manifest of an episode in several files. Implements "Chunked episodes" of docs/specs/wshard.md.

const (
	metaManifest    = "meta/manifest"
	roleAt          = 5
	maxURICharacter = 200
)

var isDigest = regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString

// ChunkEntry is one chunk of a manifest. First and Last are steps of the whole episode, both included.
type ChunkEntry struct {
	Index  int    `json:"index"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	First  int    `json:"first_step"`
	Last   int    `json:"last_step"`
	Length int    `json:"length"`
	Total  int    `json:"total"`
}

// ChunkManifest lists the files of a chunked episode. CheckContinuity checks that it is complete and in order.
type ChunkManifest struct {
	EpisodeID   string       `json:"episode_id"`
	EnvID       string       `json:"env_id"`
	TotalChunks int          `json:"total_chunks"`
	TotalSteps  int          `json:"total_timesteps"`
	Chunks      []ChunkEntry `json:"chunks"`
}

func chunkURI(episodeID string, index int) string {
	return fmt.Sprintf("%s_chunk_%04d.wshard", episodeID, index)
}

func manifestName(episodeID string) string { return episodeID + "_manifest.wshard" }

// IsManifest reports whether a file begins like a manifest of chunks. False if it cannot be read.
func IsManifest(path string) bool { return isManifestHead(firstBytes(path)) }

func isManifestHead(head string) bool {
	return len(head) > roleAt && strings.HasPrefix(head, containerMagic) && head[roleAt] == roleManifest
}

// LoadManifest reads a manifest of chunks. It checks its structure, not its continuity.
func LoadManifest(path string) (*ChunkManifest, error) {
	file, err := openContainer(path, Options{CacheBytes: -1})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.header.role != roleManifest {
		return nil, unsupportedf("the file has the role %#04x, not that of a manifest", file.header.role)
	}
	if !file.Has(metaManifest) {
		return nil, corruptf("there is no block %q", metaManifest)
	}
	data, err := file.readJSON(metaManifest)
	if err != nil {
		return nil, err
	}
	return parseManifest(data)
}

func parseManifest(data []byte) (*ChunkManifest, error) {
	document, err := decodeObject(data, metaManifest)
	if err != nil {
		return nil, err
	}
	listed, ok := document["chunks"].([]any)
	if !ok || len(listed) > maxChunks {
		return nil, corruptf("%s has no valid list of chunks", metaManifest)
	}
	m := &ChunkManifest{Chunks: make([]ChunkEntry, 0, len(listed))}
	isNamed, isEnv := false, false
	m.EpisodeID, isNamed = document["episode_id"].(string)
	m.EnvID, isEnv = memberOr(document, "env_id", "").(string)
	if !isNamed || !isEnv {
		return nil, corruptf("%s has no valid episode_id or env_id", metaManifest)
	}
	if err := readCounts(document, "total_chunks", &m.TotalChunks, "total_timesteps", &m.TotalSteps); err != nil {
		return nil, err
	}
	for _, item := range listed {
		entry, err := parseChunkEntry(item)
		if err != nil {
			return nil, err
		}
		m.Chunks = append(m.Chunks, entry)
	}
	return m, nil
}

// readCounts reads pairs of a name and the *int that takes its value.
func readCounts(document map[string]any, pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		count, ok := countOf(document[name], maxSteps)
		if !ok {
			return corruptf("%s has %s = %v", metaManifest, name, document[name])
		}
		*pairs[i+1].(*int) = count
	}
	return nil
}

func parseChunkEntry(item any) (ChunkEntry, error) {
	var entry ChunkEntry
	members, ok := item.(map[string]any)
	if !ok {
		return entry, corruptf("%s lists %v as a chunk", metaManifest, item)
	}
	if entry.URI, ok = members["uri"].(string); !ok || !isFileName(entry.URI) {
		return entry, corruptf("the chunk uri %v is not a file name beside the manifest", members["uri"])
	}
	if entry.SHA256, ok = members["sha256"].(string); !ok || !isDigest(entry.SHA256) {
		return entry, corruptf("chunk %q has the sha256 %v", entry.URI, members["sha256"])
	}
	if entry.First, entry.Last, ok = spanOf(members["timestep_range"], maxSteps); !ok {
		return entry, corruptf("chunk %q has the timestep_range %v", entry.URI, members["timestep_range"])
	}
	err := readCounts(members, "chunk_index", &entry.Index, "length_T", &entry.Length, "total_chunks", &entry.Total)
	return entry, err
}

// isFileName reports whether the text is a file name without directories.
func isFileName(text string) bool {
	count := utf8.RuneCountInString(text)
	return count > 0 && count <= maxURICharacter && !strings.ContainsAny(text, "/\\:\x00") && text != "." && text != ".."
}

func (e ChunkEntry) document() map[string]any {
	return map[string]any{
		"chunk_index": e.Index, "uri": e.URI, "sha256": e.SHA256, "timestep_range": []int{e.First, e.Last},
		"length_T": e.Length, "total_chunks": e.Total,
	}
}

// encode returns the bytes of meta/manifest, checked by the rules of the parser.
func (m *ChunkManifest) encode() ([]byte, error) {
	chunks := []any{}
	for _, entry := range m.Chunks {
		chunks = append(chunks, entry.document())
	}
	data, err := encodeJSON(map[string]any{
		"episode_id": m.EpisodeID, "env_id": m.EnvID, "total_chunks": m.TotalChunks, "total_timesteps": m.TotalSteps, "chunks": chunks,
	})
	if err == nil {
		_, err = parseManifest(data)
	}
	return data, asBadInput(err, "the manifest cannot be written")
}
