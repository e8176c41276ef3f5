package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// withGin mounts the API without gin.Recovery, which would recover from
// http.ErrAbortHandler. With that panic the API ends a failed stream, so that the
// client sees a broken connection after the error event and not a regular end.
// The API recovers from other panics itself.
func withGin(api http.Handler, prefix string) http.Handler {
	e := gin.New()
	e.Use(gin.Logger())
	e.Any(prefix+"/v1/*path", gin.WrapH(api))
	e.Use(gin.Recovery()) // applies only to the routes below
	e.GET("/", func(c *gin.Context) { c.String(http.StatusOK, homePage) })
	return e
}

// withGinDefault mounts the API beside a gin.Default(), whose Recovery cannot be removed. Its Logger
// would delay nothing, but does not see the API here: Options.Observe logs its requests.
func withGinDefault(api http.Handler, prefix string) http.Handler {
	e := gin.Default()
	e.GET("/", func(c *gin.Context) { c.String(http.StatusOK, homePage) })
	mux := http.NewServeMux()
	mux.Handle(prefix+"/v1/", api)
	mux.Handle("/", e)
	return mux
}
