package wshard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// HTTPReader reads ranges of a file at an HTTP address. It is an io.ReaderAt, and safe for several goroutines.
type HTTPReader struct {
	url    string
	client *http.Client
	header http.Header
	ctx    context.Context
	size   int64
	tag    string
	head   []byte
}

// HTTPOptions are options of [OpenHTTP]. The zero value uses the default client.
type HTTPOptions struct {
	Client     *http.Client
	Header     http.Header // sent with every request, such as Authorization
	CacheBytes int         // as in Options
}

// OpenHTTP opens an episode at an address whose server answers range requests. The context ends all its requests.
// A server that answers a range with the whole file is refused: a window must not cost the whole file.
func OpenHTTP(ctx context.Context, url string, options HTTPOptions) (*File, error) {
	reader, err := NewHTTPReader(ctx, url, options)
	if err != nil {
		return nil, err
	}
	return OpenReaderAt(reader, reader.Size(), Options{CacheBytes: options.CacheBytes})
}

// NewHTTPReader asks for the first bytes, and so for the size.
func NewHTTPReader(ctx context.Context, url string, options HTTPOptions) (*HTTPReader, error) {
	r := &HTTPReader{url: url, client: options.Client, header: options.Header, ctx: ctx}
	if r.client == nil {
		r.client = http.DefaultClient
	}
	response, err := r.request(0, headGuessBytes)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	_, total, _ := strings.Cut(response.Header.Get("Content-Range"), "/")
	size, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	if response.StatusCode == http.StatusRequestedRangeNotSatisfiable && err == nil && size == 0 {
		return r, nil // an empty file has no ranges
	}
	if err := r.checkStatus(response); err != nil {
		return nil, err
	}
	if err != nil || size < 0 {
		return nil, errorf(Storage, "%s: the server does not state the size of the file", url)
	}
	r.size, r.tag = size, response.Header.Get("ETag")
	r.head = make([]byte, min(int(size), headGuessBytes))
	if _, err := io.ReadFull(response.Body, r.head); err != nil {
		return nil, errorf(Storage, "%s: the response ended early", url)
	}
	return r, nil
}

// Size returns the size of the file in bytes.
func (r *HTTPReader) Size() int64 { return r.size }

// ReadAt fetches exactly the bytes that fit into the buffer.
func (r *HTTPReader) ReadAt(out []byte, offset int64) (int, error) {
	if offset < 0 || offset > r.size {
		return 0, badInputf("byte %d is not in the %d of %s", offset, r.size, r.url)
	}
	wanted := out
	if rest := r.size - offset; int64(len(out)) > rest {
		wanted = out[:rest]
	}
	if offset+int64(len(wanted)) <= int64(len(r.head)) {
		copy(wanted, r.head[offset:])
	} else if len(wanted) > 0 {
		if err := r.fetch(wanted, offset); err != nil {
			return 0, err
		}
	}
	if len(wanted) < len(out) {
		return len(wanted), io.EOF
	}
	return len(out), nil
}

func (r *HTTPReader) fetch(out []byte, offset int64) error {
	response, err := r.request(offset, int64(len(out)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := r.checkStatus(response); err != nil {
		return err
	}
	if tag := response.Header.Get("ETag"); r.tag != "" && tag != "" && tag != r.tag {
		return errorf(Storage, "%s changed while it was read", r.url).withHint("Open it again.")
	}
	expected := fmt.Sprintf("bytes %d-%d/%d", offset, offset+int64(len(out))-1, r.size)
	if found := response.Header.Get("Content-Range"); found != expected {
		return errorf(Storage, "%s answers with the range %q instead of %q", r.url, found, expected)
	}
	if _, err := io.ReadFull(response.Body, out); err != nil {
		return &Error{Kind: Storage, Message: r.url + ": the response ended early", Err: err}
	}
	return nil
}

func (r *HTTPReader) request(offset, count int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, badInputf("%s is not an address: %v", r.url, err)
	}
	for name, values := range r.header {
		request.Header[name] = values
	}
	// A content encoding would change the bytes.
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+count-1))
	response, err := r.client.Do(request)
	if err != nil {
		return nil, &Error{Kind: Storage, Message: r.url + " could not be reached: " + err.Error(), Err: err}
	}
	return response, nil
}

func (r *HTTPReader) checkStatus(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusPartialContent:
		return nil
	case http.StatusNotFound, http.StatusGone:
		return errorf(ObjectNotFound, "%s does not exist", r.url)
	case http.StatusUnauthorized, http.StatusForbidden:
		return errorf(AccessDenied, "%s answers with %d", r.url, response.StatusCode)
	case http.StatusOK:
		return errorf(Unsupported, "%s does not support range requests", r.url).withHint("Fetch the whole file.")
	}
	return errorf(Storage, "%s answers with %d", r.url, response.StatusCode)
}
