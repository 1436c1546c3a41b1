"""Ingest: directories of media, tables, and datasets of other libraries become datasets with bound media.

Each function reads the files and returns a `DatasetBuilder` that is ready to publish. For anything else, add tables
and artifacts to a builder directly. The same files always give the same version.
"""

from warpdata.ingest.csv import Media, csv
from warpdata.ingest.huggingface import huggingface
from warpdata.ingest.lance import lance
from warpdata.ingest.litdata import litdata
from warpdata.ingest.mds import mds
from warpdata.ingest.media_dir import audiofolder, imagefolder
from warpdata.ingest.options import IngestReport, OnReport, Packing, log_report
from warpdata.ingest.source_files import list_files, read_tables
from warpdata.ingest.warpdata3 import warpdata3
from warpdata.ingest.webdataset import webdataset

__all__ = [
    "IngestReport",
    "Media",
    "OnReport",
    "Packing",
    "audiofolder",
    "csv",
    "huggingface",
    "imagefolder",
    "lance",
    "list_files",
    "litdata",
    "log_report",
    "mds",
    "read_tables",
    "warpdata3",
    "webdataset",
]
