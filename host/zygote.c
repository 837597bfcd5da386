/*
 * The zygote: a process with PHP started (and, in worker mode, the application booted) that forks workers when the pool
 * asks.
 *
 * It promises to do nothing else: it serves no request and never runs PHP code after its boot. Workers die with it, and
 * it dies with the master, so nothing outlives the server. When the front dies, its workers finish the request that
 * they run, for ORPHANED seconds at most. If the boot opened something that processes must not share (a database
 * connection, a pipe, a thread), it says so instead of forking; the pool then starts it again with --boot private. If a
 * warm-up request did, it is started again without warm-up requests.
 */
#include "host.h"
#include "engine.h"
#include "explain.h"
#include "stray.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long workers may go on without a front. */
#define ORPHANED 30

/* Numbers of descriptors. */
struct descriptors {
	bool *has;
	int room;
};

static bool worker;
/* Messages to the pool can be sent. */
static bool channel_open = true;
/* What was open before PHP code ran: libraries' and our own. */
static struct descriptors own;
/* What was open, and how many threads there were, when it was last found to be in order. */
static struct descriptors baseline;
static int baseline_threads;
static pid_t pids[HY_MAX_WORKERS];
/* The booted application was copied: workers are rewound to it. */
static bool snapshot_taken;

static void send_message(struct hy_message message, const char *text)
{
	if (is_stray()) {
		return; /* it speaks for nobody */
	}
	size_t len = text == NULL ? 0 : MIN(strlen(text), sizeof message.text);
	message.text_len = (uint32_t)len;
	if (len > 0) {
		memcpy(message.text, text, len);
	}
	ssize_t sent = send(HY_FD_CONTROL, &message, offsetof(struct hy_message, text) + len, MSG_NOSIGNAL);
	(void)sent; /* if the pool is gone, the death signal is on its way */
}

bool zygote_is_worker(void)
{
	return worker;
}

void zygote_failed(const char *why)
{
	if (!channel_open) {
		log_format(HY_LOG_ERROR "This worker cannot serve and ends: %s", why);
		_exit(70);
	}
	send_message((struct hy_message){.type = HY_MSG_BOOT_FAILED, .worker = worker ? hy_ring_worker() : UINT32_MAX},
	             why);
	_exit(70);
}

void zygote_boot_again(enum hy_again how, const char *why)
{
	send_message((struct hy_message){.type = HY_MSG_BOOT_AGAIN,
	                                 .worker = worker ? hy_ring_worker() : UINT32_MAX,
	                                 .value = (int32_t)how},
	             why);
	_exit(0);
}

void zygote_remark(const char *why)
{
	send_message((struct hy_message){.type = HY_MSG_REMARK, .worker = worker ? hy_ring_worker() : UINT32_MAX}, why);
}

void zygote_worker_ready(void)
{
	if (!channel_open) {
		return;
	}
	send_message((struct hy_message){.type = HY_MSG_WORKER_READY, .worker = hy_ring_worker(), .pid = getpid()}, NULL);
	channel_open = false;
	close(HY_FD_CONTROL);
	close(HY_FD_CLASSES);
}

bool zygote_each_fd(bool (*visit)(int fd, void *to), void *to)
{
	DIR *fds = opendir("/proc/self/fd");
	bool listed = fds != NULL;
	const struct dirent *entry;
	while (fds != NULL && (entry = readdir(fds)) != NULL) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && fd != dirfd(fds) && !visit(fd, to)) {
			break;
		}
	}
	if (fds != NULL) {
		closedir(fds);
	}
	return listed;
}

static bool has(const struct descriptors *set, int fd)
{
	return fd < set->room && set->has[fd];
}

static bool note(int fd, void *to)
{
	struct descriptors *set = to;
	if (fd >= set->room) {
		int room = MAX(64, 2 * fd);
		set->has = perealloc(set->has, (size_t)room, 1);
		memset(set->has + set->room, 0, (size_t)(room - set->room));
		set->room = room;
	}
	set->has[fd] = true;
	return true;
}

bool zygote_is_own(int fd)
{
	return has(&own, fd);
}

void zygote_baseline(void)
{
	zygote_each_fd(note, &baseline);
	baseline_threads = rewind_threads();
}

void zygote_booting(void)
{
	zygote_baseline();
	zygote_each_fd(note, &own);
	const char *wrong = options.rewind == REWIND_OFF ? NULL : rewind_libraries_opened();
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	warm_watch();
}

/* A file that is only read, or only appended to, may be shared; anything with state of its own may not. */
static bool judge(int fd, void *to)
{
	char path[64], target[200];
	struct stat st;
	if (has(&baseline, fd) || fstat(fd, &st) != 0) {
		return true;
	}
	int flags = fcntl(fd, F_GETFL);
	/* A file without a name is one boot's own, and put back for each request. */
	bool log = (flags & O_APPEND) && !boot_files_is_nameless(fd, &st);
	bool reads = (flags & O_ACCMODE) == O_RDONLY || log;
	/* Of devices those of memory: /dev/null, /dev/urandom. A terminal has a queue of its own. */
	bool memory = S_ISCHR(st.st_mode) && major(st.st_rdev) == 1;
	/* All processes have output and log in common as it is. */
	bool output = !S_ISREG(st.st_mode) && rewind_is_output(&st);
	if ((S_ISREG(st.st_mode) && reads) || S_ISDIR(st.st_mode) || memory || output) {
		return true;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	snprintf(to, 256, "opened %s (descriptor %d), which processes must not share", target, fd);
	return false;
}

bool zygote_left_threads(int besides)
{
	/* curl's resolver, for one, ends just after the handle that it worked for. */
	for (int i = 0; rewind_threads() > besides; i++) {
		if (i == 50) {
			return true;
		}
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return false;
}

const char *zygote_unshareable(void)
{
	static char why[256];
	why[0] = '\0';
	if (!zygote_each_fd(judge, why)) {
		snprintf(why, sizeof why, "left no descriptor by which its open files could be listed");
	}
	if (why[0] == '\0' && !worker && rewind_loses_memory()) {
		snprintf(why, sizeof why, "made memory that a fork does not take along (MADV_DONTFORK)");
	}
	if (why[0] == '\0' && zygote_left_threads(baseline_threads)) {
		snprintf(why, sizeof why, "started a thread, which a fork would lose");
	}
	return why[0] == '\0' ? NULL : why;
}

/*
 * Workers must not share the position in a file or directory that the boot opened, nor a lock on it: each opens it for
 * itself. PHP goes on with the same number at the same place.
 */
static bool reopen(int fd, void *to)
{
	struct stat st;
	bool plain = !has(&own, fd) && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
	             !rewind_is_memfd(fd) && !(fcntl(fd, F_GETFL) & O_PATH);
	int error = plain ? rewind_own_file(fd) : 0;
	if (error == 0) {
		return true;
	}
	char path[64], target[200];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof target - 1);
	target[n > 0 ? n : 0] = '\0';
	snprintf(to, 512,
	         "%s, which the boot opened (descriptor %d), cannot be opened again: %s. Workers must not share a position "
	         "in it. Make it readable again, or reload the application so that it boots without it",
	         target, fd, strerror(error));
	return false;
}

/* exit() of libc, which nobody here calls. */
static void ended_past_php(int status, void *nothing)
{
	if (!is_stray()) {
		log_format(HY_LOG_ERROR
		           "Code of a request ended its process by exit(%d) of libc, past PHP's exit(); the worker "
		           "ends with it.",
		           status);
	}
}

/* In the child: a worker from here on. */
static void become_worker(uint32_t number, pid_t zygote, const sigset_t *signals)
{
	trace_forget_others();
	/* At once: what this process writes from here on has to be found. */
	const char *wrong = snapshot_taken ? rewind_adopt() : NULL;
	worker = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != zygote) {
		_exit(0); /* it died before the signal was armed */
	}
	sigprocmask(SIG_SETMASK, signals, NULL);
	isolation_worker(number);
	hy_ring_join(number);
	char shared_file[512] = "";
	bool listed = zygote_each_fd(reopen, shared_file);
	if (shared_file[0] != '\0') {
		/* One that was replaced may be closed by now. */
		boot_files_look(BOOT_FILES_ALL);
		shared_file[0] = '\0';
		listed = zygote_each_fd(reopen, shared_file);
	}
	if (wrong == NULL && shared_file[0] != '\0') {
		wrong = shared_file;
	}
	if (wrong == NULL && !listed) {
		wrong =
		    "its open files cannot be listed (/proc/self/fd), of which workers must not share a position; raise the "
		    "limit of open files (LimitNOFILE)";
	}
	wrong = wrong != NULL ? wrong : stray_watch();
	on_exit(ended_past_php, NULL);
	if (wrong != NULL) {
		zygote_failed(wrong);
	}
	if (!options.worker_mode) {
		channel_open = false;
		close(HY_FD_CONTROL);
		close(HY_FD_CLASSES);
	}
	rewind_leave_children();
	opcache_after_fork();
	randomness_forked(); /* two workers must not draw the same numbers */
}

static bool fork_worker(uint32_t number, const sigset_t *signals)
{
	pid_t zygote = getpid();
	boot_files_follow();
	if (snapshot_taken) {
		rewind_noticed();
	}
	pid_t pid = host_fork();
	if (pid == 0) {
		become_worker(number, zygote, signals);
		return true;
	}
	if (pid < 0) {
		send_message((struct hy_message){.type = HY_MSG_FORK_FAILED, .worker = number, .value = errno},
		             strerror(errno));
		return false;
	}
	pids[number] = pid;
	send_message((struct hy_message){.type = HY_MSG_FORKED, .worker = number, .pid = pid}, NULL);
	return false;
}

static void reap(void)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (uint32_t i = 0; i < HY_MAX_WORKERS; i++) {
			if (pids[i] == pid) {
				pids[i] = 0;
				boot_files_bury(i);
				trace_forget(i);
				send_message((struct hy_message){.type = HY_MSG_EXITED, .worker = i, .pid = pid, .value = status},
				             NULL);
				break;
			}
		}
	}
}

static void kill_all(void)
{
	for (uint32_t i = 0; i < HY_MAX_WORKERS; i++) {
		if (pids[i] > 0) {
			kill(pids[i], SIGKILL);
		}
	}
	/* Not for whatever else is a child: a stray of the boot ends after this process. */
	for (uint32_t i = 0; i < HY_MAX_WORKERS; i++) {
		if (pids[i] > 0) {
			waitpid(pids[i], NULL, 0);
			boot_files_bury(i);
		}
	}
}

static bool any_worker(void)
{
	for (uint32_t i = 0; i < HY_MAX_WORKERS; i++) {
		if (pids[i] > 0) {
			return true;
		}
	}
	return false;
}

/* The front is gone: nobody takes answers any more, but what a request has begun should not be cut in two. */
static void end_without_front(int signals)
{
	uint64_t until = hy_now() + ORPHANED * 1000000000ull;
	for (uint32_t i = 0; i < HY_MAX_WORKERS; i++) {
		if (pids[i] > 0) {
			hy_ring_dismiss(i);
		}
	}
	for (reap(); any_worker() && hy_now() < until; reap()) {
		struct pollfd fd = {.fd = signals, .events = POLLIN};
		struct signalfd_siginfo info;
		poll(&fd, 1, 1000);
		while (read(signals, &info, sizeof info) > 0) {
		}
	}
	kill_all();
	_exit(0);
}

/* Serves the control channel. Returns only in a worker. */
void zygote_run(void)
{
	sigset_t before, child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &before);
	rewind_hear_children();
	int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0) {
		zygote_failed("no descriptor left for the zygote's signals; raise the limit of open files");
	}
	send_message((struct hy_message){.type = HY_MSG_READY, .pid = getpid()}, engine_version());
	struct pollfd fds[] = {{.fd = HY_FD_CONTROL, .events = POLLIN},
	                       {.fd = signals, .events = POLLIN},
	                       {.fd = trace_start(), .events = POLLIN}};
	for (;;) {
		if (poll(fds, sizeof fds / sizeof fds[0], -1) < 0) {
			continue; /* a signal */
		}
		if (fds[2].revents & POLLIN) {
			trace_take();
		}
		if (fds[1].revents & POLLIN) {
			struct signalfd_siginfo info;
			while (read(signals, &info, sizeof info) > 0) {
			}
			reap();
		}
		if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) {
			struct hy_message message;
			ssize_t n = recv(HY_FD_CONTROL, &message, sizeof message, 0);
			if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
				end_without_front(signals);
			}
			if (n < (ssize_t)offsetof(struct hy_message, text) || message.worker >= hy_ring_max_workers()) {
				continue;
			}
			switch (message.type) {
			case HY_MSG_FORK:
				if (pids[message.worker] == 0 && fork_worker(message.worker, &before)) {
					close(signals);
					return;
				}
				break;
			case HY_MSG_TRACE:
				if (pids[message.worker] > 0) {
					trace_write(message.worker, pids[message.worker], (uint32_t)message.value, (uint32_t)message.pid);
				}
				send_message((struct hy_message){.type = HY_MSG_TRACED, .worker = message.worker, .pid = message.pid},
				             NULL);
				break;
			case HY_MSG_UNWIND:
				/* It may have ended, and another one have its number. */
				if (message.pid > 0 && pids[message.worker] == message.pid) {
					time_limit_end_request(message.pid, (uint32_t)message.value);
				}
				break;
			case HY_MSG_PING:
				send_message((struct hy_message){.type = HY_MSG_PONG, .value = message.value}, NULL);
				break;
			case HY_MSG_QUIT:
				kill_all();
				_exit(0);
			}
		}
	}
}

void zygote_snapshot(void)
{
	randomness_drop_read_ahead();
	if (options.rewind != REWIND_OFF) {
		snapshot_prepare();
	}
	if (options.rewind == REWIND_OFF || options.rewind == REWIND_FORK) {
		explain_boot_stands(false, 0);
		return;
	}
	uint64_t started = hy_now();
	const char *wrong = snapshot_take(options.rewind);
	explain_boot_stands(wrong == NULL, hy_now() - started);
	if (wrong != NULL) {
		log_format("Rewind is not possible here: %s. Each request runs in a process of its own instead.", wrong);
		options.rewind = REWIND_FORK;
		return;
	}
	snapshot_taken = true;
}

void zygote_adopt(void)
{
	zygote_snapshot();
	zygote_run();
}
