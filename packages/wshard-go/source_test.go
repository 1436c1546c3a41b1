package wshard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// If these tests fail, a window costs more bytes than it needs, or a server is believed that does not keep its word.

type countingReader struct {
	data  []byte
	mu    sync.Mutex
	bytes int
	reads int
}

func (r *countingReader) ReadAt(out []byte, at int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += len(out)
	r.reads++
	return bytes.NewReader(r.data).ReadAt(out, at)
}

func largeEpisode(t *testing.T, options SaveOptions) []byte {
	t.Helper()
	e := &Episode{ID: "large", Length: 4000, Observations: Channels{{Name: "x", Data: ramp(F32, 4000, 64)}}}
	data, err := os.ReadFile(save(t, e, options))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWindowsReadOnlyTheirBytes(t *testing.T) {
	for name, c := range map[string]struct {
		options SaveOptions
		most    int
	}{
		"plain":       {SaveOptions{}, 16 * 256},
		"time chunks": {SaveOptions{Compression: Compression{Zstd, 0}, TimeChunkSteps: 100}, 2 * 25_600},
	} {
		reader := &countingReader{data: largeEpisode(t, c.options)}
		file, err := OpenReaderAt(reader, int64(len(reader.data)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		block, err := file.Block("signal/x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := block.Window(0, 1); err != nil { // reads the metadata and the seek table
			t.Fatal(err)
		}
		reader.bytes, reader.reads = 0, 0
		if _, err := block.Window(3000, 3016); err != nil {
			t.Fatal(err)
		}
		if reader.bytes > c.most || reader.reads > 1 {
			t.Errorf("%s: 16 steps cost %d bytes in %d reads", name, reader.bytes, reader.reads)
		}
	}
}

func TestSourceThatEndsEarlyIsAnError(t *testing.T) {
	data := largeEpisode(t, SaveOptions{})
	file, err := OpenReaderAt(bytes.NewReader(data[:len(data)-10]), int64(len(data)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := file.Block("signal/x")
	if _, err := block.Read(); !errors.Is(err, Corrupt) {
		t.Error(err)
	}
	if _, err := OpenReaderAt(bytes.NewReader(nil), 0, Options{}); !errors.Is(err, Corrupt) {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if _, err := block.Window(0, 1); !errors.Is(err, BadInput) {
		t.Errorf("a closed file: %v", err)
	}
}

func TestEpisodeOverHTTP(t *testing.T) {
	data := largeEpisode(t, SaveOptions{Compression: Compression{Zstd, 0}, TimeChunkSteps: 100})
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		requests++
		if request.Header.Get("Authorization") != "token" {
			out.WriteHeader(http.StatusForbidden)
			return
		}
		http.ServeContent(out, request, "a.wshard", time.Time{}, bytes.NewReader(data))
	}))
	defer server.Close()
	header := http.Header{"Authorization": {"token"}}
	file, err := OpenHTTP(context.Background(), server.URL, HTTPOptions{Header: header})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if requests != 1 {
		t.Errorf("opening took %d requests", requests)
	}
	block, err := file.Block("signal/x")
	if err != nil {
		t.Fatal(err)
	}
	window, err := block.Window(3000, 3016)
	if err != nil || !bytes.Equal(window.Data, ramp(F32, 4000, 64).Data[3000*256:3016*256]) {
		t.Error("a window over HTTP differs", err)
	}
	if _, err := OpenHTTP(context.Background(), server.URL, HTTPOptions{}); !errors.Is(err, AccessDenied) {
		t.Error(err)
	}
}

func TestServersThatCannotBeUsed(t *testing.T) {
	data := largeEpisode(t, SaveOptions{})
	for kind, answer := range map[Kind]http.HandlerFunc{
		Unsupported:    func(out http.ResponseWriter, _ *http.Request) { out.Write(data) },
		ObjectNotFound: http.NotFound,
		Storage:        func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(http.StatusInternalServerError) },
	} {
		server := httptest.NewServer(answer)
		if _, err := OpenHTTP(context.Background(), server.URL, HTTPOptions{}); !errors.Is(err, kind) {
			t.Errorf("%s: %v", kind, err)
		}
		server.Close()
	}
	// The file changes after it was opened, or another range comes back.
	for _, later := range []func(http.ResponseWriter){
		func(out http.ResponseWriter) { out.Header().Set("ETag", `"two"`) },
		func(out http.ResponseWriter) { out.Header().Set("Content-Range", "bytes 0-9/10") },
	} {
		isOpen := false
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
			out.Header().Set("ETag", `"one"`)
			if isOpen {
				out.Header().Set("Content-Range", request.Header.Get("Range"))
				later(out)
				out.WriteHeader(http.StatusPartialContent)
				out.Write(data)
				return
			}
			http.ServeContent(out, request, "a", time.Time{}, bytes.NewReader(data))
		}))
		file, err := OpenHTTP(context.Background(), server.URL, HTTPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		isOpen = true
		block, _ := file.Block("signal/x")
		if _, err := block.Window(3000, 3016); !errors.Is(err, Storage) {
			t.Error(err)
		}
		server.Close()
	}
}

func TestReaderOfHTTPIsAReaderAt(t *testing.T) {
	data := largeEpisode(t, SaveOptions{})
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		http.ServeContent(out, request, "a", time.Time{}, bytes.NewReader(data))
	}))
	defer server.Close()
	reader, err := NewHTTPReader(context.Background(), server.URL, HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := io.ReadAll(io.NewSectionReader(reader, 0, reader.Size()))
	if err != nil || !bytes.Equal(found, data) {
		t.Error("the bytes differ", err)
	}
	if count, err := reader.ReadAt(make([]byte, 20), reader.Size()-5); count != 5 || err != io.EOF {
		t.Error(count, err)
	}
}

// A service opens files for as long as it runs, and may forget to close some.
func TestForgottenFilesAreFreed(t *testing.T) {
	path := save(t, fullEpisode(40), SaveOptions{Compression: Compression{Zstd, 0}, TimeChunkSteps: 7})
	open := func(isClosed bool) {
		file, err := Open(path, Options{NoMap: true})
		if err != nil {
			t.Fatal(err)
		}
		block, err := file.Block("signal/state")
		if err == nil {
			_, err = block.Window(3, 9)
		}
		if err != nil {
			t.Fatal(err)
		}
		if isClosed {
			file.Close()
		}
	}
	heap := func() int {
		var found runtime.MemStats
		// The first collection runs the finalizers, the second one frees what they held.
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		runtime.GC()
		runtime.ReadMemStats(&found)
		return int(found.HeapAlloc)
	}
	const count = 300
	for _, isClosed := range []bool{true, false} {
		open(isClosed)
		before := heap()
		for i := 0; i < count; i++ {
			open(isClosed)
		}
		if grown := heap() - before; grown > count<<10 {
			t.Errorf("closed %v: %d files keep %d bytes", isClosed, count, grown)
		}
	}
	if kept := atomic.LoadInt64(&cachedBytes); kept != 0 {
		t.Errorf("forgotten files keep %d bytes of the cache", kept)
	}
}
