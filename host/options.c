/*
 * The host's command line. hayate writes it, so errors are short; but it can be read and typed by a person.
 *
 * Every user may read a command line. So hayate hands over all that may be a secret in a file without a name, whose
 * descriptor the last two arguments say: --more FD. It holds further arguments, each ended by a NUL.
 */
#include "host.h"
#include "explain.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <sys/stat.h>
#include <unistd.h>

struct options options;

/* Before PHP starts, so with malloc. */
static void append_ini(const char *key_value)
{
	const char *old = options.ini == NULL ? "" : options.ini;
	char *grown;
	/* It is written for PHP's parser already. */
	int len = asprintf(&grown, "%s%s\n", old, key_value);
	if (len < 0) {
		fputs("hayate-php: out of memory\n", stderr);
		exit(70);
	}
	free(options.ini);
	options.ini = grown;
}

static uint64_t number(const char *name, const char *text)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0') {
		fprintf(stderr, "hayate-php: --%s takes a whole number, not '%s'\n", name, text);
		exit(2);
	}
	return n;
}

static const char *const tracking_names[] = {"off", "uffd", "soft-dirty", "fork"};

static enum rewind_tracking tracking_named(const char *name)
{
	for (int i = REWIND_OFF; i <= REWIND_FORK; i++) {
		if (strcmp(name, tracking_names[i]) == 0) {
			return (enum rewind_tracking)i;
		}
	}
	if (strcmp(name, "auto") != 0) {
		fprintf(stderr, "hayate-php: --rewind takes off, auto, uffd, soft-dirty or fork, not '%s'\n", name);
		exit(2);
	}
	return rewind_probe(NULL, 0);
}

void options_print_tracking(void)
{
	char why[256];
	printf("tracking=%s\n", tracking_names[rewind_probe(why, sizeof why)]);
	if (why[0] != '\0') {
		printf("why=%s\n", why);
	}
}

/* What the descriptor holds, in place of the two arguments that name it; never freed. Before PHP starts, so with
 * malloc. */
static char **with_more(int *argc, char **argv)
{
	if (*argc < 3 || strcmp(argv[*argc - 2], "--more") != 0) {
		return argv;
	}
	int fd = (int)number("more", argv[*argc - 1]);
	struct stat st;
	char *text = fstat(fd, &st) == 0 && st.st_size > 0 ? malloc((size_t)st.st_size) : NULL;
	if (text == NULL || pread(fd, text, (size_t)st.st_size, 0) != st.st_size || text[st.st_size - 1] != '\0') {
		fprintf(stderr, "hayate-php: descriptor %d holds no arguments; the host is started by hayate, not by hand\n",
		        fd);
		exit(2);
	}
	int count = *argc - 2;
	for (off_t i = 0; i < st.st_size; i++) {
		count += text[i] == '\0';
	}
	char **all = calloc((size_t)count + 1, sizeof *all);
	if (all == NULL) {
		fputs("hayate-php: out of memory\n", stderr);
		exit(70);
	}
	memcpy(all, argv, (size_t)(*argc - 2) * sizeof *all);
	int n = *argc - 2;
	for (char *at = text; n < count; at += strlen(at) + 1) {
		all[n++] = at;
	}
	*argc = count;
	return all;
}

const char *options_env(const char *name)
{
	const char *found = NULL;
	size_t len = strlen(name);
	for (size_t i = 0; i < options.env_count; i++) {
		if (strncmp(options.env[i], name, len) == 0 && options.env[i][len] == '=') {
			found = options.env[i] + len + 1;
		}
	}
	return found;
}

bool options_is_project(void)
{
	return options.worker_mode && options_env("HAYATE_PROJECT") != NULL;
}

void options_parse(int argc, char **argv)
{
	enum {
		MODE = 256,
		NAME,
		WORKER,
		BOOT,
		ROOT,
		CWD,
		INI,
		PHP_INI,
		INI_ENV,
		FIXED_INI,
		ENV,
		MAX_REQUESTS,
		MAX_MEMORY,
		NNP,
		REWIND,
		REWIND_VERIFY,
		WARMUP,
		COMPARE,
		CONNECTIONS,
		CONNECTION_LIFETIME,
		PROBE,
		EXPLAIN,
		CLASSES,
		DEV,
		VERSION
	};
	static const struct option flags[] = {
	    {"mode", required_argument, NULL, MODE},
	    {"name", required_argument, NULL, NAME},
	    {"worker", required_argument, NULL, WORKER},
	    {"boot", required_argument, NULL, BOOT},
	    {"root", required_argument, NULL, ROOT},
	    {"cwd", required_argument, NULL, CWD},
	    {"ini", required_argument, NULL, INI},
	    {"php-ini", required_argument, NULL, PHP_INI},
	    {"ini-env", required_argument, NULL, INI_ENV},
	    {"fixed-ini", required_argument, NULL, FIXED_INI},
	    {"env", required_argument, NULL, ENV},
	    {"max-requests", required_argument, NULL, MAX_REQUESTS},
	    {"max-memory", required_argument, NULL, MAX_MEMORY},
	    {"no-new-privileges", required_argument, NULL, NNP},
	    {"dev", no_argument, NULL, DEV},
	    {"rewind", required_argument, NULL, REWIND},
	    {"rewind-verify", required_argument, NULL, REWIND_VERIFY},
	    {"warmup", required_argument, NULL, WARMUP},
	    {"compare", required_argument, NULL, COMPARE},
	    {"connections", required_argument, NULL, CONNECTIONS},
	    {"connection-lifetime", required_argument, NULL, CONNECTION_LIFETIME},
	    {"classes", required_argument, NULL, CLASSES},
	    {"probe", no_argument, NULL, PROBE},
	    {"explain", required_argument, NULL, EXPLAIN},
	    {"version", no_argument, NULL, VERSION},
	    {NULL, 0, NULL, 0},
	};
	argv = with_more(&argc, argv);
	options.env = calloc((size_t)argc + 1, sizeof *options.env);
	options.ini_env = calloc((size_t)argc + 1, sizeof *options.ini_env);
	options.fixed_ini = calloc((size_t)argc + 1, sizeof *options.fixed_ini);
	options.ini_names = calloc((size_t)argc + 1, sizeof *options.ini_names);
	size_t ini_count = 0;
	options.warmup = calloc((size_t)argc + 1, sizeof *options.warmup);
	options.compared = calloc((size_t)argc + 1, sizeof *options.compared);
	options.no_new_privileges = true;
	int flag;
	while ((flag = getopt_long(argc, argv, "", flags, NULL)) != -1) {
		switch (flag) {
		case MODE:
			options.worker_mode = strcmp(optarg, "worker") == 0;
			break;
		case NAME:
			break; /* for those who read the list of processes */
		case WORKER:
			options.worker_script = optarg;
			break;
		case BOOT:
			options.private_boot = strcmp(optarg, "private") == 0;
			break;
		case ROOT:
			options.document_root = optarg;
			break;
		case CWD:
			options.cwd = optarg;
			break;
		case INI:
			append_ini(optarg);
			options.ini_names[ini_count++] = strndup(optarg, strcspn(optarg, "="));
			break;
		case PHP_INI:
			options.php_ini = optarg;
			break;
		case INI_ENV:
			options.ini_env[options.ini_env_count++] = optarg;
			break;
		case FIXED_INI:
			options.fixed_ini[options.fixed_ini_count++] = optarg;
			break;
		case ENV:
			options.env[options.env_count++] = optarg;
			break;
		case MAX_REQUESTS:
			options.max_requests = number("max-requests", optarg);
			break;
		case MAX_MEMORY:
			options.max_memory = number("max-memory", optarg);
			break;
		case NNP:
			options.no_new_privileges = number("no-new-privileges", optarg) != 0;
			break;
		case DEV:
			options.development = true;
			break;
		case REWIND:
			options.rewind = tracking_named(optarg);
			break;
		case REWIND_VERIFY:
			options.rewind_verify = (unsigned)number("rewind-verify", optarg);
			break;
		case WARMUP:
			visit_parse(optarg, &options.warmup[options.warmup_count++]);
			break;
		case COMPARE:
			visit_parse(optarg, &options.compared[options.compared_count++]);
			break;
		case CONNECTIONS:
			options.warm_connections = strcmp(optarg, "warm") == 0;
			break;
		case CONNECTION_LIFETIME:
			options.connection_lifetime_ms = number("connection-lifetime", optarg);
			break;
		case CLASSES:
			options.classes_later = strcmp(optarg, "later") == 0;
			break;
		case PROBE:
			options.probe = true;
			break;
		case EXPLAIN:
			explain_file = optarg;
			break;
		case VERSION:
			printf("PHP %s, layout %u\n", PHP_VERSION, HY_LAYOUT_VERSION);
			exit(0);
		default:
			exit(2);
		}
	}
	if (!options.worker_mode) {
		options.rewind = REWIND_OFF;
	}
	if (options.rewind == REWIND_OFF) {
		options.warmup_count = 0;
	}
	if (options.worker_mode && options.worker_script == NULL) {
		fputs("hayate-php: --mode worker needs --worker FILE\n", stderr);
		exit(2);
	}
}
