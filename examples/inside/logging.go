package main

import (
	"io"
	"log/slog"

	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
)

// logHandlers return a slog.Handler for each library that logs.
var logHandlers = map[string]func(w io.Writer) slog.Handler{
	"slog":    func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	"zap":     func(w io.Writer) slog.Handler { return zapHandler(newZap(w)) },
	"zerolog": func(w io.Writer) slog.Handler { return zerologHandler(zerolog.New(w).With().Timestamp().Logger()) },
}

// zapHandler lets llmhttp log by the service's zap.Logger.
func zapHandler(l *zap.Logger) slog.Handler { return zapslog.NewHandler(l.Core()) }

// zerologHandler lets llmhttp log by the service's zerolog.Logger.
func zerologHandler(l zerolog.Logger) slog.Handler { return zerolog.NewSlogHandler(l) }

// newZap stands for the logger that the service has.
func newZap(w io.Writer) *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(w), zap.InfoLevel))
}
