package wshard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Validation of a manifest and its chunks: no gap, no repetition, the listed bytes, and equal channels. Implements
// "Continuity" of docs/specs/wshard.md.

const maxShownProblems = 10

// CheckContinuity returns an error of the kind Corrupt that names every gap and contradiction. With a directory, the
// files are hashed and compared with the manifest and with each other too.
func (m *ChunkManifest) CheckContinuity(directory string) error {
	problems := m.findGaps()
	if directory != "" {
		found, err := m.findFileProblems(directory)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	if len(problems) == 0 {
		return nil
	}
	more := ""
	if rest := len(problems) - maxShownProblems; rest > 0 {
		problems, more = problems[:maxShownProblems], fmt.Sprintf("; and %d more", rest)
	}
	return corruptf("episode %q: %s%s", m.EpisodeID, strings.Join(problems, "; "), more)
}

func (m *ChunkManifest) findGaps() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m.TotalChunks != len(m.Chunks) || len(m.Chunks) == 0 {
		add("total_chunks is %d, %d are listed", m.TotalChunks, len(m.Chunks))
	}
	following, sum, uris := 0, 0, map[string]bool{}
	for position, entry := range m.Chunks {
		if entry.Index != position {
			add("chunk %d is at position %d", entry.Index, position)
		}
		if entry.Total != m.TotalChunks {
			add("chunk %d says that there are %d chunks", entry.Index, entry.Total)
		}
		if entry.First != following {
			add("chunk %d begins at step %d instead of %d", entry.Index, entry.First, following)
		}
		if entry.Last-entry.First+1 != entry.Length || entry.Length == 0 {
			add("chunk %d has %d steps from %d to %d", entry.Index, entry.Length, entry.First, entry.Last)
		}
		following = entry.Last + 1
		sum += entry.Length
		uris[entry.URI] = true
	}
	if sum != m.TotalSteps {
		add("the lengths do not add up to %d", m.TotalSteps)
	}
	if len(uris) != len(m.Chunks) {
		add("one file is listed twice")
	}
	return out
}

func (m *ChunkManifest) findFileProblems(directory string) ([]string, error) {
	var out []string
	var first *chunkLayout
	for _, entry := range m.Chunks {
		path := filepath.Join(directory, entry.URI)
		if status, err := os.Stat(path); err != nil || !status.Mode().IsRegular() {
			out = append(out, entry.URI+" is missing")
			continue
		}
		digest, err := sha256File(path)
		if err != nil {
			return nil, err
		}
		if digest != entry.SHA256 {
			out = append(out, entry.URI+" is not the file that was listed")
			continue
		}
		info, layout, err := readLayout(path)
		if err != nil {
			return nil, err
		}
		if info == nil || info.ID != m.EpisodeID || info.Length != entry.Length {
			out = append(out, fmt.Sprintf("%s does not hold %d steps of this episode", entry.URI, entry.Length))
			continue
		}
		if place := info.Chunk; place != nil {
			if place.Index != entry.Index || place.FirstStep != entry.First {
				out = append(out, entry.URI+" says that it has another position in the episode")
			}
			if place.Total != Unknown && place.Total != m.TotalChunks {
				out = append(out, fmt.Sprintf("%s says that there are %d chunks", entry.URI, place.Total))
			}
		}
		if first == nil {
			first = layout
		}
		if problem := findDisagreement(first, layout, true); problem != "" {
			out = append(out, entry.URI+" "+problem)
		}
	}
	return out, nil
}

// readLayout returns the metadata and the layout of a chunk; nothing for a file without meta/episode.
func readLayout(path string) (*Info, *chunkLayout, error) {
	file, err := Open(path, Options{CacheBytes: -1})
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Info()
	if err != nil || info == nil {
		return nil, nil, err
	}
	layout, err := fileLayout(file)
	return info, layout, err
}
