"""Uploads: files that clients send, kept in the store until a commit makes them part of a dataset.

A file is acknowledged when its bytes are in the store and its row is in the database. Its key is outside those that
garbage collection looks at, so it stays until the commit.
"""

from warpdata.server.uploads.archives import receive_archive
from warpdata.server.uploads.commit import (
    ImageOptions,
    UploadPlan,
    apply_labels,
    commit_upload,
    copy_files,
    discard_upload,
    remove_expired_uploads,
)
from warpdata.server.uploads.partial_files import (
    CHECKSUM_ALGORITHMS,
    NewPartial,
    append_part,
    begin_partial,
    find_partial,
    remove_partial,
)
from warpdata.server.uploads.received import (
    NewUpload,
    ReceivedFile,
    begin_upload,
    find_upload,
    list_files,
    receive_file,
)

__all__ = [
    "CHECKSUM_ALGORITHMS",
    "ImageOptions",
    "NewPartial",
    "NewUpload",
    "ReceivedFile",
    "UploadPlan",
    "append_part",
    "apply_labels",
    "begin_partial",
    "begin_upload",
    "commit_upload",
    "copy_files",
    "discard_upload",
    "find_partial",
    "find_upload",
    "list_files",
    "receive_archive",
    "receive_file",
    "remove_expired_uploads",
    "remove_partial",
]
