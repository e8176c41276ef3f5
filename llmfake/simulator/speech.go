// Speech.

package simulator

import (
	"context"
	"encoding/binary"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// The audio has 24,000 samples of 16 bits in a second. A frame is 24 milliseconds long, as one of
// MP3 at this rate, and the shortest piece of a word.
const (
	sampleRate    = 24_000
	frameSamples  = 576
	framesPerWord = 8
)

// silentFrame is a frame of MP3: MPEG-2, layer III, 64 kbit/s, mono. Without data it is silent.
var silentFrame = append([]byte{0xff, 0xf3, 0x84, 0xc4}, make([]byte, 188)...)

// speechFormats are the formats of audio that there are.
var speechFormats = []string{"mp3", "wav", "pcm"}

// Speak implements [audio.Speaker].
func (b *Backend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		if err := checkSpeech(req); err != nil {
			yield(nil, err)
			return
		}
		s := modelreply.Sender[*audio.SpeechChunk]{Ctx: ctx, Delay: b.Delay, Yield: yield}
		v, prompt := newVoice(req), CountTokens(req.Model, req.Input)+CountTokens(req.Model, req.Instructions)
		var spoken []byte
		if req.ResponseFormat == "wav" {
			spoken = waveHeader()
		}
		words := strings.Fields(req.Input)
		if len(words) == 0 { // a text of white space
			words = []string{""}
		}
		for _, word := range words {
			spoken = v.appendWord(spoken, word)
			if !s.Send(&audio.SpeechChunk{Audio: spoken, Duration: v.spoken()}) {
				return
			}
			spoken = spoken[:0]
		}
		yield(&audio.SpeechChunk{Usage: &llm.Usage{PromptTokens: prompt, CompletionTokens: v.frames}}, nil)
	}
}

func checkSpeech(req *audio.SpeechRequest) error {
	switch {
	case req.Model != ModelSpeech:
		return llm.ModelNotFound(req.Model)
	case req.ResponseFormat != "" && !slices.Contains(speechFormats, req.ResponseFormat):
		e := llm.Errorf(
			http.StatusBadRequest,
			"invalid_value",
			"Invalid value: '%.32s'. This model has the formats %s.",
			req.ResponseFormat,
			strings.Join(speechFormats, ", "),
		)
		return e.WithParam("response_format")
	}
	return nil
}

// A voice speaks the words of one request.
type voice struct {
	isMP3  bool
	pitch  float64 // of the lowest tone, in Hertz
	length int     // of a word, in frames
	frames int     // that were spoken
}

func newVoice(req *audio.SpeechRequest) *voice {
	v := &voice{length: framesPerWord, isMP3: req.ResponseFormat != "wav" && req.ResponseFormat != "pcm"}
	v.pitch = 110 + float64(hashOf(req.Voice.Name+req.Voice.ID)%110)
	if req.Speed != nil && *req.Speed > 0 {
		v.length = max(1, int(math.Round(framesPerWord / *req.Speed)))
	}
	return v
}

// spoken returns the duration of what was spoken.
func (v *voice) spoken() time.Duration {
	return time.Duration(v.frames) * frameSamples * time.Second / sampleRate
}

// appendWord appends a word: a tone that depends on the word, or silence in MP3.
func (v *voice) appendWord(b []byte, word string) []byte {
	v.frames += v.length
	if v.isMP3 {
		for range v.length {
			b = append(b, silentFrame...)
		}
		return b
	}
	step := 2 * math.Pi * v.pitch * math.Pow(2, float64(hashOf(word)%13)/12) / sampleRate
	samples := v.length * frameSamples
	for i := range samples {
		loudness := math.Sin(math.Pi * float64(i) / float64(samples)) // from silence to silence
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(8000*loudness*math.Sin(step*float64(i)))))
	}
	return b
}

// waveHeader returns the header of a WAVE file whose length is not known.
func waveHeader() []byte {
	b := append([]byte("RIFF\xff\xff\xff\xffWAVEfmt "), 16, 0, 0, 0, 1, 0, 1, 0)
	b = binary.LittleEndian.AppendUint32(b, sampleRate)
	b = binary.LittleEndian.AppendUint32(b, 2*sampleRate)
	return append(append(b, 2, 0, 16, 0), "data\xff\xff\xff\xff"...)
}
