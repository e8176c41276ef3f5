//go:build unix

package servertest

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Cluster makes a Redis server a cluster with a single node. It refuses commands that a larger
// cluster would refuse.
func Cluster() Option { return clusterNode(0, 1) }

// clusterNode makes a Redis server one of the masters of a cluster. It has an equal
// part of the hash slots.
func clusterNode(i, masters int) Option {
	return func(s *Server) { s.firstSlot, s.endSlot = i*slots/masters, (i+1)*slots/masters }
}

// RedisCluster starts a Redis Cluster that ends with tb, with the given number of
// masters and no replicas. The servers lose their data when they are killed or
// stopped.
func RedisCluster(tb testing.TB, masters int) []*Server {
	tb.Helper()
	nodes := make([]*Server, masters)
	for i := range nodes {
		nodes[i] = newServer(tb, redis, []Option{clusterNode(i, masters)})
	}
	if err := joinCluster(nodes); err != nil {
		tb.Fatalf("servertest: the cluster is not ready: %v", err)
	}
	return nodes
}

// joinCluster makes the first node meet the others, and waits until all nodes know that
// all slots are assigned.
func joinCluster(nodes []*Server) error {
	for _, s := range nodes[1:] {
		if _, err := nodes[0].redisDo(fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d", s.port)); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(timeout)
	for _, s := range nodes {
		for {
			info, err := s.redisDo("CLUSTER INFO")
			if err != nil {
				return err
			}
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", len(nodes))) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("node %s:\n%s", s.Addr(), info)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// assignSlots assigns the slots from first to end, which is exclusive, to a node. It continues
// after a call that has failed in between.
func assignSlots(conn net.Conn, r *bufio.Reader, first, end int) error {
	const perCommand = 4096 // the length of a command line is limited
	for ; first < end; first += perCommand {
		command := "CLUSTER ADDSLOTS"
		for slot := first; slot < min(first+perCommand, end); slot++ {
			command += " " + strconv.Itoa(slot)
		}
		if _, err := redisDo(conn, r, command); err != nil && !strings.HasSuffix(err.Error(), "is already busy") {
			return err
		}
	}
	return nil
}
