package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds how long the last answers are waited for.
const patience = 30 * time.Second

// loop serves every connection on one thread.
type loop struct {
	epoll, timer int // timer: -1 in a closed loop
	conns        []conn
	free         []*conn // without a request, in an open loop; the longest free is the first, so that all take turns
	requests     [][]byte
	next         uint64 // request to send
	due          uint64 // requests whose time has come, in an open loop
	busy         int    // connections that wait for an answer
	start, end   time.Time
	duration     time.Duration
	rate         float64
	buf          []byte
	result       Result
}

// conn is one connection; at most one request is under way on it.
type conn struct {
	fd      int
	place   int    // among the connections
	out     []byte // what is left to write
	in      []byte // the answer so far, where it did not come in one piece
	due     time.Time
	writing bool // epoll tells when more can be written
}

// newLoop connects. Its close must follow.
func newLoop(host string, requests [][]byte, c Config) (l *loop, err error) {
	l = &loop{epoll: -1, timer: -1, requests: requests, rate: c.Rate, duration: c.Duration, conns: make([]conn, c.Conns), buf: make([]byte, 256<<10)}
	l.result.Latency = NewHistogram()
	for i := range l.conns {
		l.conns[i] = conn{fd: -1, place: i}
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	addr, err := net.ResolveTCPAddr("tcp4", host)
	if err != nil {
		return nil, err
	}
	to := unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	for i := range l.conns {
		if err := l.conns[i].connect(&to); err != nil {
			return nil, err
		}
		if err := l.watch(unix.EPOLL_CTL_ADD, l.conns[i].fd, unix.EPOLLIN, i); err != nil {
			return nil, err
		}
	}
	if c.Rate <= 0 {
		return l, nil
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return l, l.watch(unix.EPOLL_CTL_ADD, l.timer, unix.EPOLLIN, len(l.conns))
}

func (c *conn) connect(to unix.Sockaddr) (err error) {
	if c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err = unix.Connect(c.fd, to); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err = unix.SetNonblock(c.fd, true); err == nil {
		err = unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	return err
}

func (l *loop) close() {
	for _, fd := range []int{l.epoll, l.timer} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	for i := range l.conns {
		if fd := l.conns[i].fd; fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (l *loop) watch(op, fd int, events uint32, place int) error {
	if err := unix.EpollCtl(l.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(place)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// run sends until the time is over, then waits for the answers that are to come.
func (l *loop) run(ctx context.Context, start time.Time) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.start, l.end = start, start.Add(l.duration)
	if err := l.begin(); err != nil {
		return err
	}
	events := make([]unix.EpollEvent, len(l.conns)+1)
	for {
		now := time.Now()
		over := now.After(l.end) || ctx.Err() != nil
		switch {
		case over && l.busy == 0:
			return nil
		case now.After(l.end.Add(patience)):
			return fmt.Errorf("%d requests are without an answer %v after the last was sent", l.busy, patience)
		}
		n, err := unix.EpollWait(l.epoll, events, 50)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, e := range events[:n] {
			if err := l.event(e, over); err != nil {
				return err
			}
		}
	}
}

// begin sends the first request of each connection, or starts the clock that tells when one is due.
func (l *loop) begin() error {
	for i := range l.conns {
		c := &l.conns[i]
		if l.rate > 0 {
			l.free = append(l.free, c)
			continue
		}
		if err := l.send(c, time.Now()); err != nil {
			return err
		}
	}
	if l.rate <= 0 {
		return nil
	}
	every := unix.NsecToTimespec(int64(float64(time.Second) / l.rate))
	if err := unix.TimerfdSettime(l.timer, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	return nil
}

func (l *loop) event(e unix.EpollEvent, over bool) error {
	if int(e.Fd) == len(l.conns) {
		return l.tick(over)
	}
	c := &l.conns[e.Fd]
	if e.Events&unix.EPOLLOUT != 0 {
		if err := l.flush(c); err != nil {
			return err
		}
	}
	if e.Events&^unix.EPOLLOUT == 0 {
		return nil
	}
	answered, err := l.receive(c)
	if err != nil || !answered {
		return err
	}
	l.busy--
	if l.rate > 0 {
		l.free = append(l.free, c)
		return l.sendDue(over)
	}
	if over {
		return nil
	}
	return l.send(c, time.Now())
}

// tick notes that requests are due, and sends them.
func (l *loop) tick(over bool) error {
	var expired [8]byte
	if _, err := unix.Read(l.timer, expired[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("read timer: %w", err)
	}
	l.due = uint64(time.Since(l.start).Seconds() * l.rate)
	return l.sendDue(over)
}

// sendDue sends what is due on the connections that are free; the rest waits for one, and the wait counts.
func (l *loop) sendDue(over bool) error {
	for !over && l.next < l.due && len(l.free) > 0 {
		c := l.free[0]
		l.free = append(l.free[:0], l.free[1:]...)
		due := l.start.Add(time.Duration(float64(l.next+1) / l.rate * float64(time.Second)))
		if err := l.send(c, due); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) send(c *conn, due time.Time) error {
	c.out, c.due, c.in = l.requests[l.next%uint64(len(l.requests))], due, c.in[:0]
	l.next++
	l.busy++
	return l.flush(c)
}

// flush writes what the socket takes, and has epoll tell when it takes more.
func (l *loop) flush(c *conn) error {
	n, err := unix.Write(c.fd, c.out)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("write: %w", err)
	}
	c.out = c.out[max(n, 0):]
	if more := len(c.out) > 0; more != c.writing {
		c.writing = more
		events := uint32(unix.EPOLLIN)
		if more {
			events |= unix.EPOLLOUT
		}
		return l.watch(unix.EPOLL_CTL_MOD, c.fd, events, c.place)
	}
	return nil
}

// receive reads what came; answered tells that it was the end of an answer.
func (l *loop) receive(c *conn) (answered bool, err error) {
	n, err := unix.Read(c.fd, l.buf)
	if errors.Is(err, unix.EAGAIN) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return false, errors.New("the server closed a connection")
	}
	got := l.buf[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, got...)
		got = c.in
	}
	status, whole, err := parse(got)
	if err != nil {
		return false, err
	}
	if !whole {
		if len(c.in) == 0 {
			c.in = append(c.in, got...)
		}
		return false, nil
	}
	if status/100 == 2 {
		l.result.Requests++
		return true, l.result.Latency.RecordValue(max(1, time.Since(c.due).Microseconds()))
	}
	if l.result.Errors++; l.result.Errors == 1 {
		l.result.FirstError = fmt.Sprintf("%.400s", got)
	}
	return true, nil
}
