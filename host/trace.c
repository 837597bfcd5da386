/*
 * What the request of a worker is doing: the zygote reads the calls of PHP out of the worker's memory while the worker
 * goes on, or stands in a system call, and writes them to the log.
 *
 * It promises to leave the worker as it is: it sends no signal (which would cut sleep() and the like short) and does
 * not stop it. It must never believe what it reads: the application's code can write there, and the worker goes on
 * meanwhile, so that an address may lead anywhere. Each read is bounded and may fail; of what is read only numbers and
 * text come into the log.
 *
 * Nobody of a worker's user may open its memory (isolation.c). So each worker opens its own in the moment in which it
 * may, before it runs any code of the application's, and hands the descriptor to the zygote. No worker keeps those of
 * others.
 */
#include "host.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Calls of one request: a screen or two. */
#define DEEPEST 64
#define LONGEST_NAME 256u
/* Descriptors that the zygote spends on it at most: what it forks has a table of descriptors as large as its own. */
#define MOST_WORKERS 256u

/* [0]: the zygote's end; -1: there is none. */
static int handed[2] = {-1, -1};
/* Of each worker, one more than the descriptor of its memory; 0: there is none. */
static int memories[MOST_WORKERS];

struct report {
	char text[16000];
	size_t len;
};

int trace_start(void)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, handed) != 0) {
		handed[0] = handed[1] = -1;
	}
	return handed[0];
}

/* In a worker, before anything else: what it has of the zygote's goes, whether or not it can be traced. While it is
 * dumpable whoever may trace it may take its descriptors (pidfd_getfd()), so there must be none of others then. */
void trace_forget_others(void)
{
	for (uint32_t i = 0; i < MOST_WORKERS; i++) {
		if (memories[i] > 0) {
			close(memories[i] - 1);
		}
	}
	if (handed[0] >= 0) {
		close(handed[0]);
	}
}

/* In a worker, while it is dumpable, which is to be short; -1: it cannot be traced. */
int trace_open(uint32_t number)
{
	return handed[1] < 0 || number >= MOST_WORKERS ? -1 : open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
}

/* In a worker: what that has opened. */
void trace_hand_over(uint32_t number, int memory)
{
	if (memory >= 0) {
		union {
			struct cmsghdr head;
			char room[CMSG_SPACE(sizeof memory)];
		} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof memory)}};
		memcpy(CMSG_DATA(&control.head), &memory, sizeof memory);
		struct iovec part = {.iov_base = &number, .iov_len = sizeof number};
		struct msghdr message = {
		    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
		ssize_t sent = sendmsg(handed[1], &message, MSG_NOSIGNAL);
		(void)sent; /* without it this worker is not traced */
		close(memory);
	}
	if (handed[1] >= 0) {
		close(handed[1]);
	}
}

void trace_forget(uint32_t number)
{
	if (number < MOST_WORKERS && memories[number] > 0) {
		close(memories[number] - 1);
		memories[number] = 0;
	}
}

/* Half of the descriptors stay for everything else. */
static bool is_room(int memory)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)memory < limit.rlim_cur / 2;
}

void trace_take(void)
{
	uint32_t number;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	for (;;) {
		struct iovec part = {.iov_base = &number, .iov_len = sizeof number};
		struct msghdr message = {
		    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
		ssize_t n = recvmsg(handed[0], &message, MSG_CMSG_CLOEXEC);
		if (n < 0) {
			return;
		}
		const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		if (head == NULL || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int))) {
			continue;
		}
		int memory;
		memcpy(&memory, CMSG_DATA(head), sizeof memory);
		if (n != sizeof number || number >= MOST_WORKERS || !is_room(memory)) {
			close(memory);
			continue;
		}
		trace_forget(number);
		memories[number] = memory + 1;
	}
}

/* Reads `len` bytes at that address of the worker's. */
static bool peek(int memory, const void *from, void *to, size_t len)
{
	return from != NULL && pread(memory, to, len, (off_t)(uintptr_t)from) == (ssize_t)len;
}

/* As much of it as there is, up to the end of a page that nothing follows; what is not text becomes '?'. */
static size_t peek_text(int memory, const char *from, char *to, size_t most)
{
	ssize_t n = from == NULL ? 0 : pread(memory, to, most, (off_t)(uintptr_t)from);
	for (ssize_t i = 0; i < n; i++) {
		if ((unsigned char)to[i] < ' ' || to[i] == 0x7f) {
			to[i] = '?';
		}
	}
	return n > 0 ? (size_t)n : 0;
}

static void say(struct report *to, const char *text, size_t len)
{
	len = MIN(len, sizeof to->text - 1 - to->len);
	memcpy(to->text + to->len, text, len);
	to->text[to->len += len] = '\0';
}

static void say_format(struct report *to, const char *format, ...)
{
	char text[128];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	say(to, text, strlen(text));
}

static void say_string(struct report *to, int memory, const zend_string *at)
{
	char head[offsetof(zend_string, val)], text[LONGEST_NAME];
	size_t len;
	if (!peek(memory, at, head, sizeof head)) {
		say_format(to, "?");
		return;
	}
	memcpy(&len, head + offsetof(zend_string, len), sizeof len);
	say(to, text, peek_text(memory, at->val, text, MIN(len, sizeof text)));
}

/* What is known of a call: no more than what is read of it at one time. */
struct call {
	const zend_execute_data *older;
	union _zend_function function;
	uint32_t line; /* where it stands; 0: nobody knows */
	bool is_user;
};

/* The call at that address, or the next older one that is of a function. */
static bool read_call(int memory, const zend_execute_data *at, struct call *call)
{
	for (int i = 0; at != NULL && i < DEEPEST; i++) {
		zend_execute_data frame;
		if (!peek(memory, at, &frame, sizeof frame)) {
			return false;
		}
		memset(call, 0, sizeof *call);
		call->older = frame.prev_execute_data;
		if (frame.func == NULL) {
			at = frame.prev_execute_data;
			continue;
		}
		if (!peek(memory, frame.func, &call->function.common, sizeof call->function.common)) {
			return false;
		}
		call->is_user = call->function.type != ZEND_INTERNAL_FUNCTION;
		if (call->is_user) {
			zend_op op;
			if (!peek(memory, frame.func, &call->function.op_array, sizeof call->function.op_array)) {
				return false;
			}
			call->line = peek(memory, frame.opline, &op, sizeof op) ? op.lineno : 0;
		}
		return true;
	}
	return false;
}

static void say_place(struct report *to, int memory, const struct call *call)
{
	say_string(to, memory, call->function.op_array.filename);
	say_format(to, "(%u)", call->line);
}

static void say_function(struct report *to, int memory, const struct call *call)
{
	const zend_class_entry *scope = call->function.common.scope;
	const zend_string *class_name;
	if (call->function.common.function_name == NULL) {
		/* include, require, or eval(), whose "file" says so. */
		say_format(to, "include(");
		say_string(to, memory, call->function.op_array.filename);
		say_format(to, ")");
		return;
	}
	if (scope != NULL && peek(memory, &scope->name, &class_name, sizeof class_name)) {
		say_string(to, memory, class_name);
		say_format(to, call->function.common.fn_flags & ZEND_ACC_STATIC ? "::" : "->");
	}
	say_string(to, memory, call->function.common.function_name);
	say_format(to, "()");
}

/* As PHP writes the trace of an exception, so that whoever knows those can read it, and programs as well. */
static void say_calls(struct report *to, int memory)
{
	const zend_execute_data *at;
	struct call call, caller;
	if (!peek(memory, &EG(current_execute_data), &at, sizeof at)) {
		say_format(to, "; its memory cannot be read");
		return;
	}
	if (!read_call(memory, at, &call)) {
		say_format(to, "; no PHP code runs: the request begins or ends");
		return;
	}
	if (call.is_user) {
		say_format(to, ", in ");
		say_place(to, memory, &call);
	}
	int depth = 0;
	for (; depth < DEEPEST && read_call(memory, call.older, &caller); call = caller) {
		say_format(to, "\n#%d ", depth++);
		if (caller.is_user) {
			say_place(to, memory, &caller);
		} else {
			say_format(to, "[internal function]");
		}
		say_format(to, ": ");
		say_function(to, memory, &call);
	}
	say_format(to, depth == DEEPEST ? "\n#%d …" : "\n#%d {main}", depth);
}

static void say_field(struct report *to, int memory, const struct request *of, enum hy_field field)
{
	char text[1024];
	say(to, text, peek_text(memory, of->field[field].at, text, MIN(of->field[field].len, sizeof text)));
}

void trace_write(uint32_t number, pid_t pid, uint32_t milliseconds, uint32_t ticket)
{
	struct request of;
	struct report report = {.len = 0};
	int memory = number < MOST_WORKERS ? memories[number] - 1 : -1;
	/* A worker that booted by itself may have come to forks by itself. */
	bool forks = options.rewind == REWIND_FORK;
	enum rewind_tracking way;
	if (memory >= 0 && peek(memory, &options.rewind, &way, sizeof way)) {
		forks |= way == REWIND_FORK;
	}
	if (memory >= 0 && !peek(memory, &request, &of, sizeof of)) {
		memory = -1; /* killed a moment ago, for the time that it took */
	}
	if (memory >= 0 && !forks &&
	    (of.exchange.slot == NULL || (uint32_t)(of.exchange.claim >> HY_CLAIM_TICKET_SHIFT) != ticket)) {
		return; /* that request is over */
	}
	say_format(&report, HY_LOG_OWN "slow request: ");
	if (memory >= 0 && !forks) {
		say_field(&report, memory, &of, HY_FIELD_METHOD);
		say_format(&report, " ");
		say_field(&report, memory, &of, HY_FIELD_TARGET);
		say_format(&report, " ");
	}
	say_format(&report, "has run for %u.%u s so far (worker %u, process %d)", milliseconds / 1000,
	           milliseconds % 1000 / 100, number, (int)pid);
	if (number >= MOST_WORKERS) {
		say_format(&report, "; what it is doing is read of workers 0 to %u only", MOST_WORKERS - 1);
		log_for(NULL, 0, report.text, report.len);
		return;
	}
	if (memory < 0) {
		say_format(&report, "; what it is doing cannot be read: it has ended, there is no /proc, or there are too many "
		                    "workers for the limit of open files");
		log_for(NULL, 0, report.text, report.len);
		return;
	}
	if (forks) {
		say_format(&report, "; what it is doing is not known where each request runs in a fork");
		log_for(NULL, 0, report.text, report.len);
		return;
	}
	say_calls(&report, memory);
	char id[128];
	size_t len =
	    peek_text(memory, of.field[HY_FIELD_REQUEST_ID].at, id, MIN(of.field[HY_FIELD_REQUEST_ID].len, sizeof id));
	log_for(id, len, report.text, report.len);
}
