"""Export: the rows and files of a version become a directory that other libraries read.

Each format is a module. An export reads only the public interface of tables and references, whose bytes are verified.
"""

from warpdata.exporters.export import EXPORT_FORMATS, export, export_dataset
from warpdata.exporters.file_copies import FileCopies
from warpdata.exporters.options import ExportOptions
from warpdata.exporters.output import ExportDirectory, check_target, new_directory
from warpdata.exporters.report import ExportReport

__all__ = [
    "EXPORT_FORMATS",
    "ExportDirectory",
    "ExportOptions",
    "ExportReport",
    "FileCopies",
    "check_target",
    "export",
    "export_dataset",
    "new_directory",
]
