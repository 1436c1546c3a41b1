"""Images, audio and video: decoding, headers, packets. Nothing here knows stores or datasets."""

from warpdata.formats.media.audio import AudioInfo, audio_info, decode_audio
from warpdata.formats.media.callback_file import Reserve, reserve_nothing
from warpdata.formats.media.image import (
    decode_image,
    decode_rgb,
    encode_png,
    image_size,
    image_to_array,
    thumbnail_png,
)
from warpdata.formats.media.video import (
    PacketReader,
    VideoInfo,
    VideoPacket,
    VideoReader,
    cut_video,
    decode_packets,
    open_packets,
)

__all__ = [
    "AudioInfo",
    "PacketReader",
    "Reserve",
    "VideoInfo",
    "VideoPacket",
    "VideoReader",
    "audio_info",
    "cut_video",
    "decode_audio",
    "decode_image",
    "decode_packets",
    "decode_rgb",
    "encode_png",
    "image_size",
    "image_to_array",
    "open_packets",
    "reserve_nothing",
    "thumbnail_png",
]
