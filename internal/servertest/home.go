//go:build unix

package servertest

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// A home is the home directory of a server, which holds its data, its log and its
// configuration, and the user who runs the server.
type home struct {
	dir  string
	user *syscall.Credential // nil means the user of this process
}

// command returns a command that runs as the server's user in its directory.
func (h *home) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = h.dir
	// Other environment variables could change what a server does.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + h.dir}
	// In a process group of its own, the server does not get the SIGINT of a
	// terminal, so that it does not end before the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: h.user}
	return cmd
}

func (h *home) logName() string { return filepath.Join(h.dir, "log") }

// logTail returns the end of the server's log.
func (h *home) logTail() []byte {
	b, _ := os.ReadFile(h.logName())
	return bytes.TrimSpace(b[max(0, len(b)-4096):])
}

func (h *home) configName() string { return filepath.Join(h.dir, "config") }

// dropRoot makes the server run as the user postgres or nobody.
func (h *home) dropRoot() error {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	h.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(h.dir, uid, gid)
}
