//go:build unix

package servertest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Servers use ports below the range from which systems assign local ports.
// Otherwise a client could take the port of a server that is not running.
const firstPort, lastPort = 10_000, 22_000

// clusterBusOffset is the difference between the port of a Redis cluster node for other nodes and
// its port for clients.
const clusterBusOffset = 10_000

// freePort returns a free port. If cluster is set, the port for other nodes is
// free as well.
func freePort(cluster bool) (port int, err error) {
	for range 100 {
		port = firstPort + rand.IntN(lastPort-firstPort)
		if err = checkFree(port); err == nil && cluster {
			err = checkFree(port + clusterBusOffset)
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, err
}

func checkFree(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}
