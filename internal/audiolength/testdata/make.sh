#!/bin/sh
# Makes the recordings of the tests with ffmpeg: 3 seconds of a tone, whose names begin with their
# length in milliseconds.
set -eu
cd "$(dirname "$0")"
tone() { ffmpeg -hide_banner -loglevel error -y -f lavfi -i "sine=frequency=440:duration=3:sample_rate=16000" -bitexact "$@"; }
tone -ac 1 -ar 8000 -c:a pcm_u8 3000.wav
tone -ac 1 -ar 8000 -c:a pcm_u8 -f wav - >3000-stream.wav # the sizes in the header are not known
tone -c:a libmp3lame -b:a 8k -write_xing 0 3000-cbr.mp3
tone -c:a libmp3lame -q:a 9 3000-vbr-xing.mp3
ffmpeg -hide_banner -loglevel error -y -f lavfi -i "color=red:size=64x64:duration=1" -frames:v 1 -bitexact cover.png
ffmpeg -hide_banner -loglevel error -y -i 3000-cbr.mp3 -i cover.png -map 0 -map 1 -c copy -bitexact -write_xing 0 -id3v2_version 3 3000-picture.mp3
rm cover.png
tone -c:a aac -b:a 16k -ar 48000 -f adts 3000.aac
tone -c:a flac -ar 8000 -sample_fmt s16 3000.flac
tone -c:a flac -ar 8000 -sample_fmt s16 -f flac - >3000-stream.flac
tone -c:a libopus -b:a 8k 3000.opus
tone -c:a libvorbis -q:a 0 3000-vorbis.ogg
cat 3000.opus 3000-vorbis.ogg >6000-two.ogg # one stream after another
tone -c:a aac -b:a 16k unknown-3000.m4a
