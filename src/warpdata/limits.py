"""Bounds on foreign input, and constants of stored formats. Tuning values are beside the code that uses them.

A size read from a file or a store is hostile until it has been compared with one of these.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Names
MAX_NAME_LENGTH = 128
MAX_REF_LENGTH = 128
MAX_KEY_LENGTH = 1024
MAX_MESSAGE_LENGTH = 4096
MAX_AUTHOR_LENGTH = 1024

# Manifests (docs/specs/manifest.md)
MAX_MANIFEST_BYTES = 256 * KIB
MAX_METADATA_BYTES = 64 * KIB
MAX_JSON_DEPTH = 32
MAX_SECTION_ENTRIES = 512
MAX_LISTED_NAMES_BYTES = 16 * KIB
"""The manifest omits longer lists of column names; readers take them from a footer."""
INLINE_SHARDS = 16
PAGE_MIN_ENTRIES = 64
PAGE_TARGET_ENTRIES = 512
PAGE_MAX_ENTRIES = 2048
MAX_TOP_PAGES = 256
MAX_PAGE_BYTES = 1 * MIB
MAX_PAGE_LEVELS = 8
INLINE_RUNS = 16
INLINE_POSITIONS = 16
"""Longer runs of sample ids and lists of deleted rows are blobs."""
MAX_COLUMN_FILES = 256
MAX_SCHEMA_CHANGES = 1024
MAX_GENERATIONS = 1024
MAX_URI_LENGTH = 2048
MAX_ROWS_BLOB_BYTES = 256 * MIB
"""A stored bitmap of deleted rows, or a stored sequence of sample ids."""

# Pointers: hint, heads, labels, commits (docs/specs/catalog.md)
MAX_RECORD_BYTES = 64 * KIB
MAX_COMMIT_ATTEMPTS = 400
MAX_HINT_LAG_PROBES = 64

# Store (docs/specs/store.md)
MAX_SMALL_OBJECT_BYTES = 64 * MIB
COALESCE_GAP_BYTES = 1 * MIB
SINGLE_PUT_BYTES = 16 * MIB
MULTIPART_MAX_PARTS = 9000
STREAM_CHUNK_BYTES = 4 * MIB
COPY_CHUNK_BYTES = 1 * MIB
MAX_OPEN_HANDLES = 128
MAX_SIGNED_URL_S = 7 * 24 * 3600

# Tables
MAX_FOOTER_BYTES = 256 * MIB
MAX_BLOOM_FILTER_BYTES = 16 * MIB
MAX_FILTER_LENGTH = 64 * KIB
MAX_FILTER_DEPTH = 64
MAX_FILTER_JSON_BYTES = 64 * MIB
MAX_VECTOR_LENGTH = 65_536
MAX_QUERY_LENGTH = 256 * KIB
MAX_THRIFT_DEPTH = 32
MAX_SCHEMA_DEPTH = 128
MAX_ROW_GROUP_ROWS = 2**31 - 1
MAX_FILTER_EXPANSION = 2**20
MAX_QUERY_GROWTH = 2**14
MAX_QUERY_CONDITIONS = 1000
MAX_FILTER_MEMORY_BYTES = 256 * MIB

# Indexes (docs/specs/indexes.md)
MAX_INDEX_DIRECTORY_BYTES = 64 * MIB
MAX_SEGMENT_ROWS = 2**32 - 1
MAX_BITMAP_VALUES = 2**20

# Search (docs/specs/search.md)
MAX_VECTOR_SIZE = 65_536
MAX_IVF_LISTS = 65_536
MAX_SIGN_BITS = 4096

# Artifacts (docs/specs/artifacts.md)
MAX_MEMBER_NAME_BYTES = 4 * KIB
MEMBER_CHUNK_BYTES = 4 * MIB
MEMBER_GAP_BYTES = 64 * KIB
MEMBER_REQUEST_BYTES = 1 * MIB
ARTIFACT_SHARD_BYTES = 128 * MIB
MAX_TAR_EXTENSION_BYTES = 1 * MIB
INDEX_LEAF_ENTRIES = 128
INDEX_INNER_ENTRIES = 512
INDEX_MAX_LEVELS = 4
MAX_INDEX_PAGE_BYTES = 4 * MIB

# Media
MAX_IMAGE_PIXELS = 178_956_970
MAX_THUMBNAIL_PIXELS = 100_000_000
MAX_THUMBNAIL_FILE_BYTES = 64 * MIB
MAX_AUDIO_SAMPLES = 2**29
MAX_AUDIO_CHUNKS = 10_000
MAX_UNTAGGED_MP3_BYTES = 256 * MIB
MAX_VIDEO_FRAMES = 4_000_000
MEDIA_MEMORY_BYTES = 4_000_000_000
"""Default of `Settings.media_memory_bytes`."""

# Collections (docs/specs/collections.md)
MAX_CLASS_NAME_LENGTH = 256
MAX_ANNOTATION_POINTS = 100_000
MAX_MASK_RUNS = 10_000_000
MAX_COLLECTION_RECORD_BYTES = 16 * MIB
MAX_PLATFORM_DOCUMENT_BYTES = 1 * GIB
MAX_LABEL_JSON_BYTES = 4 * GIB
MAX_LABEL_XML_BYTES = 4 * GIB
MAX_LABEL_XML_DEPTH = 32
MAX_LABEL_FILES = 10_000_000
MAX_RETURNED_LABEL_BYTES = 64 * MIB
"""What a labelling tool sends about one image, or of CVAT about one job."""
MAX_TRAINING_TEXT_LENGTH = 256
MAX_PURGED_PATHS = 256
"""Paths that have the content of one purge."""

# S3 gateway (docs/specs/gateway.md)
MAX_HTTP_HEAD_BYTES = 64 * KIB
"""The request line and the headers of a request to the service."""
MAX_S3_KEY_BYTES = 8 * KIB
MAX_S3_KEY_DAYS = 3660
MAX_S3_QUERY_BYTES = 16 * KIB
MAX_S3_QUERY_PAIRS = 100
MAX_S3_CHUNK_HEADER_BYTES = 1 * KIB
MAX_S3_TRAILER_BYTES = 8 * KIB
MAX_S3_BODY_BYTES = 64 * MIB
"""One upload, before it is decoded. Larger files come by `warp publish` and the uploads of the service."""
MAX_INBOX_BODY_BYTES = 8 * MIB
MAX_INBOX_NAME_LENGTH = 512
MAX_VIRTUAL_FILE_BYTES = 1 * GIB

# Streams (docs/specs/streaming.md)
MAX_SHUFFLE_BLOCKS = 2**24
MAX_SHUFFLE_SIZE = 2**53 - 1
MAX_TOKEN_SEGMENTS = 1000

# WShard (docs/specs/wshard.md)
WSHARD_MAX_ENTRIES = 1_000_000
WSHARD_MAX_NAMES_BYTES = 100 * MIB
WSHARD_MAX_DECODED_BYTES = 1 * GIB
WSHARD_MAX_JSON_BYTES = 64 * MIB
WSHARD_MAX_STEPS = 2**40
WSHARD_MAX_DIMENSIONS = 16
WSHARD_MAX_CHANNELS = 65_536
WSHARD_MAX_CHUNKS = 1_000_000
WSHARD_MAX_READ_BYTES = 16 * GIB
WSHARD_READ_EXPANSION = 256
WSHARD_MAX_RECORD_BYTES = 1 * GIB
WSHARD_MAX_EXTRADATA_BYTES = 1 * MIB
WSHARD_MAX_FRAME_BYTES = 256 * MIB

# Episodes (docs/specs/episodes.md)
EPISODES_CHECK_BYTES = 64 * KIB
EPISODES_MAX_CHECK_BYTES = 16 * MIB
EPISODES_KNOWN_BYTES = 1 * MIB
EPISODES_METADATA_NAMES = 1024
EPISODES_MAX_CHUNKS = 4096
EPISODES_MAX_WINDOW_STEPS = 1_000_000
EPISODES_MAX_FRAME_PIXELS = 40_000_000
EPISODES_MAX_DECODED_BYTES = 4 * GIB
"""Decoded camera frames of one batch, or of one read."""

# Tensors (docs/specs/tensors.md)
MAX_TENSOR_INDEX_BYTES = 128 * MIB
MAX_SAFETENSORS_HEADER_BYTES = 100_000_000
MAX_TENSORS = 1_000_000
MAX_TENSOR_DIMS = 32
MAX_TENSOR_NAME_BYTES = 4 * KIB
MAX_TENSOR_SPACE_BYTES = 2**53 - 1
MAX_TENSOR_FILES = 4096
MAX_VIEW_OPS = 64
MAX_PEER_EXTENTS_BYTES = 16 * MIB
MAX_PEER_RANGE_BYTES = 64 * MIB
MAX_PEER_HEADER_BYTES = 16 * KIB
MAX_REPLICA_EXTENTS = 1_000_000

# Conversion
MAX_NPZ_BYTES = 16 * GIB
MAX_LEROBOT_FILE_BYTES = 16 * GIB

# Import of other libraries' datasets
MAX_FOREIGN_INDEX_BYTES = 64 * MIB
MAX_FOREIGN_VALUE_BYTES = 64 * MIB
"""JSON inside of one sample. A parsed value takes up to 24 times its bytes."""
MAX_FOREIGN_EMPTY_LISTS = 1024
"""Empty lists of one array, which have no bytes to compare their count with."""
MAX_SAMPLE_SUFFIXES = 1024
"""Columns that the names of WebDataset members make."""
MAX_FOREIGN_SHARD_BYTES = 4 * GIB
"""One decompressed shard of MDS or chunk of LitData. Both address bytes by 32 bits."""

# The service (docs/reference/api.md)
MAX_BODY_BYTES = 1 * MIB
MAX_FILE_BYTES = 64 * MIB
"""One file, archive or change that is sent in one request."""
MAX_PARTIAL_BYTES = 1024 * GIB
"""One file that is sent in parts."""
MAX_UPLOAD_FILES = 10_000
MAX_WEBHOOKS = 50
MAX_SCHEDULES = 100
MAX_FETCHED_BYTES = 16 * GIB
"""What an import loads from one address."""
MAX_ARCHIVE_ENTRIES = 1_000_000
MAX_ARCHIVE_RATIO = 100
"""Unpacked bytes for each byte of an archive."""
MAX_UNPACKED_BYTES = 256 * GIB
MAX_SEARCH_BODY_BYTES = 16 * MIB
"""A search with an example image."""
