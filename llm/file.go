package llm

import (
	"io"
	"mime"
	"path"
	"strings"
)

// A File is a file that a client has sent, such as a recording. The Name and the ContentType are
// the client's: each may be empty or wrong. Neither has control characters. Browsers call a
// recording "blob", and many programs send every file as application/octet-stream, so the extension
// of the Name tells more.
type File struct {
	Name        string // without a directory
	ContentType string // a media type in the form of mime.FormatMediaType
	Size        int64  // in bytes

	// Content has the bytes of the file. Several goroutines may read it at the same time. A Backend
	// may read it until its call has returned; after that, reads fail with an error that wraps
	// fs.ErrClosed.
	Content io.ReaderAt
}

// Open returns a reader of the whole file. It need not be closed, and each call returns another one.
func (f *File) Open() *io.SectionReader { return io.NewSectionReader(f.Content, 0, f.Size) }

// Extension returns what the file is by the extension of its Name, such as "mp3", or if it has none,
// by its ContentType. It is in lower case and without a dot, and empty if neither tells.
func (f *File) Extension() string {
	if f.HasExtension() {
		return strings.ToLower(path.Ext(f.Name)[1:])
	}
	media, _, _ := mime.ParseMediaType(f.ContentType)
	return mediaExtensions[media]
}

// HasExtension reports whether the Name has an extension.
func (f *File) HasExtension() bool { return len(path.Ext(f.Name)) > 1 }

// mediaExtensions are the extensions of files by their media types, of those that OpenAI's API
// takes (https://platform.openai.com/docs/guides/speech-to-text and image-generation). Package mime
// would ask the system.
var mediaExtensions = map[string]string{
	"audio/flac": "flac", "audio/x-flac": "flac", "audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/mp4": "m4a", "audio/m4a": "m4a", "audio/x-m4a": "m4a",
	"audio/ogg": "ogg", "audio/opus": "ogg", "audio/wav": "wav", "audio/wave": "wav", "audio/x-wav": "wav", "audio/vnd.wave": "wav",
	"audio/webm": "webm", "video/mp4": "mp4", "video/mpeg": "mpeg", "video/webm": "webm",
	"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif",
}
