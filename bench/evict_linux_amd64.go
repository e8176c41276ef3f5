package main

import (
	"syscall"
	"time"
	"unsafe"
)

// newEvictor writes the code of an evictor. It is never freed.
func newEvictor() (evictor, error) {
	code, err := syscall.Mmap(-1, 0, evictedLines*cacheLine, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	const jump, ret = 0xeb, 0xc3
	for line := range evictedLines {
		copy(code[line*cacheLine:], []byte{jump, cacheLine - 2}) // to the next line, from the end of the jump
	}
	code[(evictedLines-1)*cacheLine] = ret
	start := &code[0]
	function := &start // a func is a pointer to the address of its code
	return *(*evictor)(unsafe.Pointer(&function)), nil
}

// pause waits until a chunk no longer counts as one that came with the last. It does not let
// the scheduler know, whose work would vary. Meanwhile a server does other work, after which its code is
// no longer in the cache.
func (e evictor) pause() {
	wait := syscall.NsecToTimespec((100 * time.Microsecond).Nanoseconds())
	syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&wait)), 0, 0)
	e()
}
