"""Images, audio and video: decoding, headers, packets. Nothing here knows stores or datasets."""

from warpdata.formats.media.audio import AudioInfo, audio_info, decode_audio
from warpdata.formats.media.callback_file import Reserve, reserve_nothing
from warpdata.formats.media.image import (
    check_pixels,
    decode_image,
    decode_rgb,
    encode_png,
    image_size,
    image_to_array,
    resize_rgb,
    thumbnail_png,
)
from warpdata.formats.media.image_header import read_image_size
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
    "AudioInfo",
    "DecodedFrame",
    "DecoderSettings",
    "PacketReader",
    "Reserve",
    "VideoInfo",
    "VideoPacket",
    "VideoReader",
    "audio_info",
    "check_pixels",
    "cut_video",
    "decode_audio",
    "decode_image",
    "decode_packets",
    "decode_rgb",
    "encode_png",
    "image_size",
    "image_to_array",
    "open_packets",
    "read_image_size",
    "require_decoders",
    "reserve_nothing",
    "resize_rgb",
    "thumbnail_png",
]
