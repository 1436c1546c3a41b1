"""Images, audio and video: decoding and probing."""

from warpdata.formats.media.decode import (
    AudioInfo,
    VideoInfo,
    VideoReader,
    audio_info,
    decode_audio,
    decode_image,
    image_size,
    image_to_array,
)

__all__ = [
    "AudioInfo",
    "VideoInfo",
    "VideoReader",
    "audio_info",
    "decode_audio",
    "decode_image",
    "image_size",
    "image_to_array",
]
