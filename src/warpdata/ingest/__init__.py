"""From what people have on disk to a dataset with bound media: folders of pictures or sounds, WebDataset tars, CSV.

Each function looks at the files and returns a `DatasetBuilder` that is ready to publish; nothing is
written before that. Whoever wants something else adds tables and artifacts to a builder by hand.
The same files always give the same version.
"""

from warpdata.ingest.media_dir import audiofolder, imagefolder
from warpdata.ingest.pack import Packing
from warpdata.ingest.report import IngestReport, OnReport, log_report
from warpdata.ingest.tabular import Media, csv
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
