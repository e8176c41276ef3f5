package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// withGin mounts the API before gin.Recovery is in use. That would swallow
// what cuts a failed stream: the client would get the error event, and then a
// clean end instead of a broken connection. The API recovers by itself.
func withGin(api http.Handler) http.Handler {
	e := gin.New()
	e.Use(gin.Logger())
	e.Any("/v1/*path", gin.WrapH(api))
	e.Use(gin.Recovery()) // for the routes from here on
	e.GET("/", func(c *gin.Context) { c.String(http.StatusOK, home) })
	return e
}
