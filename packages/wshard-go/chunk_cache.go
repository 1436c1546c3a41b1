package wshard

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Decoded and verified time chunks, cached for later windows: windows overlap, and chunks decode as a whole. A block
// of a mapped file that is read repeatedly is cached as one array, so that a window is a slice of it. Implements
// "Chunk cache" of docs/specs/wshard.md, with two differences: a block in a single frame is cached like one chunk, and
// a full process stops caching instead of evicting other blocks.

const (
	defaultCacheBytes = 8 << 20
	processCacheBytes = 2 << 30
)

var cachedBytes int64 // of all blocks of the process

// blockCache holds the chunks of one block, oldest first, or all of its rows. A nil cache caches nothing.
type blockCache struct {
	mu        sync.Mutex
	maxBytes  int
	size      int
	readBytes int
	chunks    map[int][]byte
	order     []int
	rows      *Array
}

func (c *blockCache) get(number int) []byte {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chunks[number]
}

func (c *blockCache) put(number int, data []byte) {
	if c == nil || len(data) > c.maxBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chunks[number] != nil || c.rows != nil {
		return // another goroutine was faster
	}
	for c.size+len(data) > c.maxBytes || (c.size > 0 && atomic.LoadInt64(&cachedBytes)+int64(len(data)) > processCacheBytes) {
		c.grow(-len(c.chunks[c.order[0]]))
		delete(c.chunks, c.order[0])
		c.order = c.order[1:]
	}
	if atomic.LoadInt64(&cachedBytes)+int64(len(data)) > processCacheBytes {
		return
	}
	if c.chunks == nil {
		c.chunks = map[int][]byte{}
	}
	c.chunks[number] = data
	c.order = append(c.order, number)
	c.grow(len(data))
}

// all returns the rows of the whole block, if they are cached.
func (c *blockCache) all() *Array {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows
}

// shouldLoadAll counts bytes that windows read. True once these are as many as the block has, and the block fits.
func (c *blockCache) shouldLoadAll(readBytes, blockBytes int) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBytes += readBytes
	if c.readBytes < blockBytes {
		return false
	}
	c.readBytes = 0
	free := processCacheBytes - int(atomic.LoadInt64(&cachedBytes)) + c.size
	return blockBytes <= min(c.maxBytes, free)
}

func (c *blockCache) putRows(rows *Array) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chunks, c.order, c.rows = nil, nil, rows
	c.grow(len(rows.Data) - c.size)
}

func (c *blockCache) clear() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chunks, c.order, c.rows = nil, nil, nil
	c.grow(-c.size)
}

func (c *blockCache) grow(change int) {
	c.size += change
	atomic.AddInt64(&cachedBytes, int64(change))
}

// cacheSet has the caches of the blocks of one file. A file that is not closed must not keep its share of the process;
// its mapping stays, because arrays may still use it. The set refers to nothing else of the file, because the garbage
// collector never frees a cycle with a finalizer.
type cacheSet struct {
	mu     sync.Mutex
	caches []*blockCache
}

func newCacheSet() *cacheSet {
	set := &cacheSet{}
	runtime.SetFinalizer(set, (*cacheSet).clear)
	return set
}

func (s *cacheSet) add(maxBytes int) *blockCache {
	cache := &blockCache{maxBytes: maxBytes}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caches = append(s.caches, cache)
	return cache
}

func (s *cacheSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cache := range s.caches {
		cache.clear()
	}
}
