/*
 * What the boot does that all requests will see frozen: it reads the clock, draws random numbers, reads the environment
 * and files, opens connections. Seen by standing before PHP's functions of that kind while the worker script boots, and
 * by looking at the descriptors when it has. What an extension does by itself, without a PHP function being called, is
 * not seen; nor is the reading of $_ENV and $_SERVER.
 *
 * `hayate explain` tells all of it. What was drawn by chance is looked for in each boot, and the log names it: under
 * php-fpm it is another value for each visitor, and nothing else would say that here it is the same. So it is with
 * files that a recognised project's own code reads as it boots, such as settings: nobody has decided that they are read
 * once.
 */
#include "explain.h"

#include "host.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_FROZEN 512
#define MAX_FDS 1024
/* Places in the log. */
#define MOST_TOLD 8
/* So many calls of a function are looked at, where they come from. */
#define MOST_PLACES 256

static struct frozen list[MAX_FROZEN];
static size_t count;
static bool watching;
/* Only what is drawn by chance, and what a project reads. */
static bool for_the_log;
static bool open_before[MAX_FDS];
/* Shared by all processes of the application: the log has it. */
static bool *told;

/* Whether a file lies beside the worker script, and that is one of ours (php/boot/), which is told its project. */
static bool is_ours(const char *file)
{
	const char *name = strrchr(options.worker_script, '/');
	return name != NULL && strncmp(file, options.worker_script, (size_t)(name - options.worker_script) + 1) == 0 &&
	       options_env("HAYATE_PROJECT") != NULL;
}

/* Paths that hold other people's code: the line that matters is the one that called into it. */
static bool is_foreign(const char *file)
{
	return strstr(file, "/vendor/") != NULL || strncmp(file, "/usr/share/php/", 15) == 0 || is_ours(file);
}

/* The innermost line of the application itself, else of any code. NULL when a script of ours did it by itself. */
static char *where(void)
{
	const zend_op_array *found = NULL;
	uint32_t line = 0;
	for (const zend_execute_data *frame = EG(current_execute_data); frame != NULL; frame = frame->prev_execute_data) {
		if (frame->func == NULL || !ZEND_USER_CODE(frame->func->type)) {
			continue;
		}
		if (found == NULL && is_ours(ZSTR_VAL(frame->func->op_array.filename))) {
			return NULL;
		}
		bool foreign = is_foreign(ZSTR_VAL(frame->func->op_array.filename));
		if (found == NULL || !foreign) {
			found = &frame->func->op_array;
			line = frame->opline->lineno;
		}
		if (!foreign) {
			break;
		}
	}
	char *text = NULL;
	if (found != NULL && asprintf(&text, "%s:%u", ZSTR_VAL(found->filename), line) < 0) {
		text = NULL;
	}
	return text;
}

/* Of what was drawn each place counts, of everything else the first one. */
static void note(const char *kind, const char *what, bool placed)
{
	bool drawn = strcmp(kind, "random") == 0;
	uint64_t calls = 0;
	struct frozen *last = NULL;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(list[i].kind, kind) == 0 && strcmp(list[i].what, what) == 0) {
			last = &list[i];
			calls += list[i].count;
		}
	}
	if (last != NULL && (!drawn || calls >= MOST_PLACES)) {
		last->count++;
		return;
	}
	char *at = placed ? where() : NULL;
	for (size_t i = 0; i < count && last != NULL && at != NULL; i++) {
		if (strcmp(list[i].what, what) == 0 && list[i].at != NULL && strcmp(list[i].at, at) == 0) {
			list[i].count++;
			free(at);
			return;
		}
	}
	if (count < MAX_FROZEN && (at != NULL || !placed)) {
		list[count++] = (struct frozen){.kind = kind, .what = strdup(what), .at = at, .count = 1};
	} else {
		free(at);
	}
}

/* Whether a call does what its kind says; NULL: always. Arguments are counted from 1. */
typedef bool (*condition)(const zend_execute_data *call);

static bool none(const zend_execute_data *call)
{
	return ZEND_CALL_NUM_ARGS(call) == 0;
}

static bool at_most_one(const zend_execute_data *call)
{
	return ZEND_CALL_NUM_ARGS(call) <= 1;
}

static bool fewer_than_six(const zend_execute_data *call)
{
	return ZEND_CALL_NUM_ARGS(call) < 6;
}

/* A seed: all that is drawn from it is the same in each request. */
static bool seeds(const zend_execute_data *call)
{
	return ZEND_CALL_NUM_ARGS(call) > 0 && Z_TYPE_P(ZEND_CALL_ARG(call, 1)) != IS_NULL;
}

/* "now", "+1 day", "" and nothing are relative to the clock; what names a year or a timestamp is not. */
static bool relative(const zend_execute_data *call)
{
	if (ZEND_CALL_NUM_ARGS(call) == 0) {
		return true;
	}
	const zval *text = ZEND_CALL_ARG(call, 1);
	if (Z_TYPE_P(text) != IS_STRING) {
		return Z_TYPE_P(text) == IS_NULL;
	}
	int digits = 0;
	for (size_t i = 0; i < Z_STRLEN_P(text) && digits < 4; i++) {
		digits = Z_STRVAL_P(text)[i] >= '0' && Z_STRVAL_P(text)[i] <= '9' ? digits + 1 : 0;
	}
	return digits < 4;
}

static bool relative_to_now(const zend_execute_data *call)
{
	return ZEND_CALL_NUM_ARGS(call) <= 1 && relative(call);
}

static struct watched {
	const char *kind, *class, *name;
	condition freezes;
	zend_function *function;
	zif_handler handler;
} watched[] = {
    {"time", NULL, "time", NULL, NULL, NULL},
    {"time", NULL, "microtime", NULL, NULL, NULL},
    {"time", NULL, "hrtime", NULL, NULL, NULL},
    {"time", NULL, "gettimeofday", NULL, NULL, NULL},
    {"time", NULL, "date", at_most_one, NULL, NULL},
    {"time", NULL, "gmdate", at_most_one, NULL, NULL},
    {"time", NULL, "idate", at_most_one, NULL, NULL},
    {"time", NULL, "getdate", none, NULL, NULL},
    {"time", NULL, "localtime", none, NULL, NULL},
    {"time", NULL, "mktime", fewer_than_six, NULL, NULL},
    {"time", NULL, "gmmktime", fewer_than_six, NULL, NULL},
    {"time", NULL, "strtotime", relative_to_now, NULL, NULL},
    {"time", NULL, "strftime", at_most_one, NULL, NULL},
    {"time", NULL, "gmstrftime", at_most_one, NULL, NULL},
    {"time", NULL, "date_create_from_format", NULL, NULL, NULL},
    {"time", NULL, "date_create_immutable_from_format", NULL, NULL, NULL},
    {"time", NULL, "unixtojd", none, NULL, NULL},
    {"time", NULL, "easter_date", none, NULL, NULL},
    {"time", NULL, "easter_days", none, NULL, NULL},
    {"time", NULL, "sys_getloadavg", NULL, NULL, NULL},
    {"time", NULL, "date_create", relative, NULL, NULL},
    {"time", NULL, "date_create_immutable", relative, NULL, NULL},
    {"time", "datetime", "__construct", relative, NULL, NULL},
    {"time", "datetimeimmutable", "__construct", relative, NULL, NULL},
    {"time", "datetime", "createfromformat", NULL, NULL, NULL},
    {"time", "datetimeimmutable", "createfromformat", NULL, NULL, NULL},
    {"random", NULL, "random_bytes", NULL, NULL, NULL},
    {"random", NULL, "random_int", NULL, NULL, NULL},
    {"random", NULL, "mt_rand", NULL, NULL, NULL},
    {"random", NULL, "rand", NULL, NULL, NULL},
    {"random", NULL, "lcg_value", NULL, NULL, NULL},
    {"random", NULL, "uniqid", NULL, NULL, NULL},
    {"random", NULL, "shuffle", NULL, NULL, NULL},
    {"random", NULL, "str_shuffle", NULL, NULL, NULL},
    {"random", NULL, "array_rand", NULL, NULL, NULL},
    {"random", NULL, "openssl_random_pseudo_bytes", NULL, NULL, NULL},
    {"random", NULL, "gmp_random_bits", NULL, NULL, NULL},
    {"random", NULL, "gmp_random_range", NULL, NULL, NULL},
    {"random", NULL, "uuid_create", NULL, NULL, NULL},
    {"random", "mongodb\\bson\\objectid", "__construct", none, NULL, NULL},
    {"random", NULL, "openssl_pkey_new", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_aead_aes256gcm_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_aead_chacha20poly1305_ietf_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_aead_chacha20poly1305_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_aead_xchacha20poly1305_ietf_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_auth_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_box_keypair", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_generichash_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_kdf_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_kx_keypair", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_secretbox_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_secretstream_xchacha20poly1305_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_shorthash_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_sign_keypair", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_stream_keygen", NULL, NULL, NULL},
    {"random", NULL, "sodium_crypto_stream_xchacha20_keygen", NULL, NULL, NULL},
    {"random", NULL, "session_create_id", NULL, NULL, NULL},
    {"random", NULL, "mt_srand", seeds, NULL, NULL},
    {"random", NULL, "srand", seeds, NULL, NULL},
    {"random", NULL, "gmp_random_seed", seeds, NULL, NULL},
    {"random", "random\\engine\\mt19937", "__construct", seeds, NULL, NULL},
    {"random", "random\\engine\\pcgoneseq128xslrr64", "__construct", seeds, NULL, NULL},
    {"random", "random\\engine\\xoshiro256starstar", "__construct", seeds, NULL, NULL},
    {"random", "random\\engine\\mt19937", "generate", NULL, NULL, NULL},
    {"random", "random\\engine\\pcgoneseq128xslrr64", "generate", NULL, NULL, NULL},
    {"random", "random\\engine\\xoshiro256starstar", "generate", NULL, NULL, NULL},
    {"random", "random\\engine\\secure", "generate", NULL, NULL, NULL},
    {"random", "random\\randomizer", "getbytesfromstring", NULL, NULL, NULL},
    {"random", "random\\randomizer", "getfloat", NULL, NULL, NULL},
    {"random", "random\\randomizer", "nextfloat", NULL, NULL, NULL},
    {"random", "random\\randomizer", "getint", NULL, NULL, NULL},
    {"random", "random\\randomizer", "nextint", NULL, NULL, NULL},
    {"random", "random\\randomizer", "getbytes", NULL, NULL, NULL},
    {"random", "random\\randomizer", "shufflearray", NULL, NULL, NULL},
    {"random", "random\\randomizer", "shufflebytes", NULL, NULL, NULL},
    {"random", "random\\randomizer", "pickarraykeys", NULL, NULL, NULL},
    {"environment", NULL, "getenv", NULL, NULL, NULL},
    {"connection", NULL, "fsockopen", NULL, NULL, NULL},
    {"connection", NULL, "pfsockopen", NULL, NULL, NULL},
    {"connection", NULL, "stream_socket_client", NULL, NULL, NULL},
    {"connection", NULL, "socket_connect", NULL, NULL, NULL},
    {"connection", NULL, "curl_exec", NULL, NULL, NULL},
    {"connection", NULL, "curl_multi_exec", NULL, NULL, NULL},
    {"connection", NULL, "mysqli_connect", NULL, NULL, NULL},
    {"connection", NULL, "mysqli_real_connect", NULL, NULL, NULL},
    {"connection", NULL, "pg_connect", NULL, NULL, NULL},
    {"connection", NULL, "pg_pconnect", NULL, NULL, NULL},
    {"connection", "mysqli", "__construct", NULL, NULL, NULL},
    {"connection", "mysqli", "real_connect", NULL, NULL, NULL},
    {"connection", "pdo", "__construct", NULL, NULL, NULL},
    {"connection", "redis", "connect", NULL, NULL, NULL},
    {"connection", "redis", "pconnect", NULL, NULL, NULL},
};
#define WATCHED (sizeof watched / sizeof watched[0])

/* Whether it is one of those whose answer is another one each time, as far as a name can say that. */
static bool draws(const struct watched *it)
{
	return strcmp(it->kind, "time") == 0 || strcmp(it->kind, "random") == 0;
}

bool frozen_draws(const char *function)
{
	for (size_t i = 0; i < WATCHED; i++) {
		if (watched[i].class == NULL && draws(&watched[i]) && strcasecmp(watched[i].name, function) == 0) {
			return true;
		}
	}
	return false;
}

bool frozen_draws_class(const char *name)
{
	for (size_t i = 0; i < WATCHED; i++) {
		const char *last = watched[i].class == NULL ? NULL : strrchr(watched[i].class, '\\');
		if (watched[i].class != NULL && draws(&watched[i]) &&
		    strcasecmp(last != NULL ? last + 1 : watched[i].class, name) == 0) {
			return true;
		}
	}
	return false;
}

static const struct watched *of_call(const zend_execute_data *call)
{
	for (size_t i = 0; i < WATCHED; i++) {
		if (watched[i].function == call->func) {
			return &watched[i];
		}
	}
	/* A class that extends one of PHP's has copies of its methods, and a closure (random_bytes(...)) one of its
	 * function: name and scope stay. */
	for (size_t i = 0; i < WATCHED; i++) {
		const zend_function *function = watched[i].function;
		if (function != NULL && function->common.scope == call->func->common.scope &&
		    zend_string_equals(function->common.function_name, call->func->common.function_name)) {
			return &watched[i];
		}
	}
	return NULL;
}

static void stand_before(INTERNAL_FUNCTION_PARAMETERS)
{
	const struct watched *it = of_call(execute_data);
	if (it == NULL) {
		zend_throw_error(NULL, "Hayate lost the place of a function that it stands before; report this");
		return;
	}
	if (watching && (it->freezes == NULL || it->freezes(execute_data)) &&
	    !(for_the_log && randomness_follows_a_seed(execute_data))) {
		char what[256];
		const zval *first = ZEND_CALL_NUM_ARGS(execute_data) > 0 ? ZEND_CALL_ARG(execute_data, 1) : NULL;
		bool named = strcmp(it->kind, "environment") == 0 && first != NULL && Z_TYPE_P(first) == IS_STRING;
		snprintf(what, sizeof what, "%s%s%s(%s)", it->class == NULL ? "" : ZSTR_VAL(it->function->common.scope->name),
		         it->class == NULL ? "" : "::", ZSTR_VAL(it->function->common.function_name),
		         named ? Z_STRVAL_P(first) : "");
		note(it->kind, what, true);
	}
	it->handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static bool called_by_application(void)
{
	for (const zend_execute_data *frame = EG(current_execute_data); frame != NULL; frame = frame->prev_execute_data) {
		if (frame->func != NULL && ZEND_USER_CODE(frame->func->type) &&
		    !is_foreign(ZSTR_VAL(frame->func->op_array.filename))) {
			return true;
		}
	}
	return false;
}

/* What belongs to a release, and changes with it. */
static bool is_of_release(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1, *end = strrchr(name, '.');
	return strncmp(name, ".env", 4) == 0 || strncmp(name, "composer.", 9) == 0 ||
	       (end != NULL && (strcmp(end, ".php") == 0 || strcmp(end, ".phar") == 0));
}

/* Files that PHP code opens. What it includes is its code, and no news. */
static const php_stream_wrapper_ops *plain_ops;
static php_stream_wrapper_ops watched_ops;

static php_stream *open_plain(php_stream_wrapper *wrapper, const char *path, const char *mode, int flags,
                              zend_string **opened, php_stream_context *context STREAMS_DC)
{
	bool reads = strpbrk(mode, "waxc+") == NULL;
	if (watching && !(flags & (STREAM_OPEN_FOR_INCLUDE | STREAM_OPEN_FOR_ZEND_STREAM)) &&
	    (!for_the_log || (reads && path[0] == '/' && !is_of_release(path) && called_by_application()))) {
		char what[MAXPATHLEN + 16];
		snprintf(what, sizeof what, "%s%s", path, reads ? "" : " (to write)");
		note("file", what, true);
	}
	return plain_ops->stream_opener(wrapper, path, mode, flags, opened, context STREAMS_REL_CC);
}

/* Descriptors. */

static void describe_socket(int fd, char *to, size_t size)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un local;
		struct sockaddr_storage room;
	} peer = {.any = {0}};
	socklen_t len = sizeof peer.room;
	int type = 0;
	socklen_t type_len = sizeof type;
	getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len);
	const char *protocol = type == SOCK_DGRAM ? "udp" : "tcp";
	char host[INET6_ADDRSTRLEN] = "";
	if (getpeername(fd, &peer.any, &len) != 0) {
		snprintf(to, size, "a socket without a peer");
	} else if (peer.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &peer.v4.sin_addr, host, sizeof host);
		snprintf(to, size, "%s %s:%u", protocol, host, ntohs(peer.v4.sin_port));
	} else if (peer.any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &peer.v6.sin6_addr, host, sizeof host);
		snprintf(to, size, "%s [%s]:%u", protocol, host, ntohs(peer.v6.sin6_port));
	} else {
		snprintf(to, size, "unix %s", len > sizeof peer.any.sa_family ? peer.local.sun_path : "(without a name)");
	}
}

static void each_descriptor(void (*visit)(int fd))
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && fd != dirfd(directory) && fd < MAX_FDS) {
			visit(fd);
		}
	}
	if (directory != NULL) {
		closedir(directory);
	}
}

static void was_open(int fd)
{
	open_before[fd] = true;
}

static void is_open(int fd)
{
	struct stat st;
	char what[512], link[64], path[400];
	if (open_before[fd] || fstat(fd, &st) != 0) {
		return;
	}
	if (S_ISSOCK(st.st_mode)) {
		describe_socket(fd, path, sizeof path);
		snprintf(what, sizeof what, "%s, still open", path);
		note("connection", what, false);
		return;
	}
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	bool script = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY && strcmp(path, options.worker_script) == 0;
	if ((S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)) && !script) {
		snprintf(what, sizeof what, "%s, still open", path);
		note("file", what, false);
	}
}

static zend_function *find(const struct watched *it)
{
	const HashTable *functions = CG(function_table);
	if (it->class != NULL) {
		const zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), it->class, strlen(it->class));
		if (class == NULL || class->type != ZEND_INTERNAL_CLASS) {
			return NULL;
		}
		functions = &class->function_table;
	}
	zend_function *function = zend_hash_str_find_ptr(functions, it->name, strlen(it->name));
	return function != NULL && function->type == ZEND_INTERNAL_FUNCTION ? function : NULL;
}

void frozen_watch(bool all)
{
	for_the_log = !all;
	for (size_t i = 0; i < WATCHED; i++) {
		/* What a seed of its own gives is the same under php-fpm. */
		bool wanted = all || (strcmp(watched[i].kind, "random") == 0 && watched[i].freezes != seeds);
		watched[i].function = wanted ? find(&watched[i]) : NULL;
		if (watched[i].function != NULL) {
			watched[i].handler = watched[i].function->internal_function.handler;
			watched[i].function->internal_function.handler = stand_before;
		}
	}
	watching = true;
	if (for_the_log && !options_is_project()) {
		return;
	}
	plain_ops = php_plain_files_wrapper.wops;
	watched_ops = *plain_ops;
	watched_ops.stream_opener = open_plain;
	php_plain_files_wrapper.wops = &watched_ops;
	if (!for_the_log) {
		each_descriptor(was_open);
	}
}

void frozen_stop(void)
{
	if (!watching) {
		return;
	}
	watching = false;
	/* Copies in classes and closures of the application keep standing before theirs, and do nothing but call them. So
	 * does what an extension has put itself before since. */
	for (size_t i = 0; i < WATCHED; i++) {
		if (watched[i].function != NULL && watched[i].function->internal_function.handler == stand_before) {
			watched[i].function->internal_function.handler = watched[i].handler;
		}
	}
	if (plain_ops != NULL) {
		php_plain_files_wrapper.wops = plain_ops;
	}
	if (!for_the_log) {
		each_descriptor(is_open);
	}
}

void frozen_share(void)
{
	void *at = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	told = at == MAP_FAILED ? NULL : at;
}

/* What the boot did of that kind, and where, for the log: "a at x, b at y". False: nothing. */
static bool places_of(const char *kind, char *to, size_t size)
{
	size_t len = 0, told_of = 0, all = 0;
	to[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		if (strcmp(list[i].kind, kind) != 0 || list[i].at == NULL) {
			continue;
		}
		all++;
		if (told_of < MOST_TOLD && len < size - 1) {
			int n = snprintf(to + len, size - len, "%s%s at %s", told_of == 0 ? "" : ", ", list[i].what, list[i].at);
			len += (size_t)MAX(n, 0);
			told_of++;
		}
	}
	if (all > told_of && len < size - 1) {
		snprintf(to + len, size - len, ", …");
	}
	return told_of > 0;
}

void frozen_tell(void)
{
	char drawn[3000], read[3000];
	if (!for_the_log) {
		return;
	}
	bool draws = places_of("random", drawn, sizeof drawn), reads = places_of("file", read, sizeof read);
	frozen_forget();
	if ((!draws && !reads) || (told != NULL && __atomic_exchange_n(told, true, __ATOMIC_RELAXED))) {
		return;
	}
	if (draws) {
		log_format(
		    "The boot drew random numbers, and each request finds the same: %s. Draw in the request what must differ "
		    "from visitor to visitor, such as a nonce, a token or an id.",
		    drawn);
	}
	if (reads) {
		log_format("The boot read files, and each request finds what was in them then: %s. A change counts after a "
		           "reload; read in the request what is to count at once.",
		           read);
	}
}

size_t frozen_list(const struct frozen **to)
{
	*to = list;
	return count;
}

void frozen_forget(void)
{
	for (size_t i = 0; i < count; i++) {
		free(list[i].what);
		free(list[i].at);
	}
	count = 0;
}
