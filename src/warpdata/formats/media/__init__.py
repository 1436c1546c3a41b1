"""Images, audio and video: decoding, headers, packets. Nothing here knows stores or datasets."""

from warpdata.formats.media.audio import AudioInfo, audio_info, decode_audio
from warpdata.formats.media.callback_file import Reserve, reserve_nothing
from warpdata.formats.media.file_types import REF_TYPE_BY_SUFFIX, media_suffix, ref_type_of, suffix_of
from warpdata.formats.media.image import (
    Resample,
    check_pixels,
    decode_image,
    decode_numbers,
    decode_rgb,
    encode_palette_png,
    encode_png,
    image_size,
    image_to_array,
    image_to_rgb,
    raw_to_png,
    resize_rgb,
    thumbnail_png,
    thumbnail_webp,
)
from warpdata.formats.media.image_header import read_image_size
from warpdata.formats.media.image_size import ResizeTo, check_resize_to, parse_size
from warpdata.formats.media.jpeg import JpegDecoder, choose_jpeg_decoder
from warpdata.formats.media.nvjpeg import EncodedJpeg, check_image_device, decode_on_device, keep_encoded
from warpdata.formats.media.video import (
    DecodedFrame,
    DecoderSettings,
    PacketReader,
    VideoInfo,
    VideoPacket,
    VideoReader,
    cut_video,
    decode_packets,
    open_packets,
    require_decoders,
)

__all__ = [
    "REF_TYPE_BY_SUFFIX",
    "AudioInfo",
    "DecodedFrame",
    "DecoderSettings",
    "EncodedJpeg",
    "JpegDecoder",
    "PacketReader",
    "Resample",
    "Reserve",
    "ResizeTo",
    "VideoInfo",
    "VideoPacket",
    "VideoReader",
    "audio_info",
    "check_image_device",
    "check_pixels",
    "check_resize_to",
    "choose_jpeg_decoder",
    "cut_video",
    "decode_audio",
    "decode_image",
    "decode_numbers",
    "decode_on_device",
    "decode_packets",
    "decode_rgb",
    "encode_palette_png",
    "encode_png",
    "image_size",
    "image_to_array",
    "image_to_rgb",
    "keep_encoded",
    "media_suffix",
    "open_packets",
    "parse_size",
    "raw_to_png",
    "read_image_size",
    "ref_type_of",
    "require_decoders",
    "reserve_nothing",
    "resize_rgb",
    "suffix_of",
    "thumbnail_png",
    "thumbnail_webp",
]
