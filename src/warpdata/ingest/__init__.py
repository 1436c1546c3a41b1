"""Ingest: directories of image or audio files, WebDataset tars and tables become datasets with bound media.

Each function reads the files and returns a `DatasetBuilder` that is ready to publish. For anything else, add tables
and artifacts to a builder directly. The same files always give the same version.
"""

from warpdata.ingest.csv import Media, csv
from warpdata.ingest.media_dir import audiofolder, imagefolder
from warpdata.ingest.options import IngestReport, OnReport, Packing, log_report
from warpdata.ingest.webdataset import webdataset

__all__ = [
    "IngestReport",
    "Media",
    "OnReport",
    "Packing",
    "audiofolder",
    "csv",
    "imagefolder",
    "log_report",
    "webdataset",
]
