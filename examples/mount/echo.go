package main

import (
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
)

// withEcho mounts the API behind echo's usual middleware. Recover does not
// recover from http.ErrAbortHandler, with which the API ends a failed stream.
func withEcho(api http.Handler, prefix string) http.Handler {
	e := echo.New()
	e.Use(middleware.RequestLogger(), middleware.Recover())
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, homePage) })
	e.Any(prefix+"/v1/*", echo.WrapHandler(api))
	return e
}
