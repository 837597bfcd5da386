/*
 * The lines of explain.h: when the boot stands, what it did and of what its snapshot consists; after each rewind, how
 * long the handler ran and where it wrote.
 *
 * Where it wrote is told by what lies there: the boot's objects by class, other blocks of PHP's heap by size, and the
 * rest by the mapping. A page counts for the first object on it, so the classes are a hint, not an account.
 */
#include "explain.h"

#include "host.h"
#include "rewind/rewind.h"
#include "zend_alloc_sizes.h"

#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#define PAGE 4096ul
#define LINE_ROOM 16384
#define MAX_WARMUPS 64
#define MAX_KINDS 64
#define MAX_RANGES 512
#define MAX_WRITTEN 4096

/* One event on its way into the file. */
struct line {
	size_t len;
	char text[LINE_ROOM];
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *line, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line->text + line->len, sizeof line->text - line->len, format, args);
	va_end(args);
	line->len = MIN(line->len + (size_t)MAX(n, 0), sizeof line->text - 1);
}

/* A JSON string. Bytes above 127 stay; the reader replaces what is no UTF-8. */
static void add_string(struct line *line, const char *text)
{
	add(line, "\"");
	for (; *text != '\0'; text++) {
		if (*text == '"' || *text == '\\') {
			add(line, "\\%c", *text);
		} else if ((unsigned char)*text < ' ') {
			add(line, "\\u%04x", *text);
		} else {
			add(line, "%c", *text);
		}
	}
	add(line, "\"");
}

/* A line that did not fit is no JSON and will be left out. */
static void send_line(struct line *line)
{
	add(line, "\n");
	int fd = open(explain_file, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t written = write(fd, line->text, line->len);
		(void)written; /* the report is without it then */
		close(fd);
	}
}

/* What is known before the boot stands. */
const char *explain_file;
static uint64_t boot_began, boot_ns;
static uint32_t files, files_of_snapshot;
static char boot_at[MAXPATHLEN + 16];
static struct {
	char path[256];
	uint64_t us;
	int status;
} warmups[MAX_WARMUPS];
static size_t warmup_count;

struct mapping {
	uintptr_t start, end;
	char kind[40];
};

struct page {
	uintptr_t at;
	const zend_class_entry *class; /* of the first object of the boot that lies on it */
};

struct cause {
	char what[128];
	size_t pages;
};

/* What a rewind must not take back, and room for what is not to count as written by a request. */
static struct notes {
	uint64_t handler_began, handler_ns;
	bool told; /* of the last request there is an event */
	uint64_t destructors_began, destructors_ns;
	uint32_t loaded; /* PHP files that the request included and the snapshot has not */
	size_t mapping_count;
	struct mapping mappings[2048]; /* of the snapshot */
	struct rewind_range ranges[MAX_RANGES];
	struct page pages[MAX_WRITTEN];
	struct cause causes[MAX_KINDS];
} * notes;

void explain_boot_begins(void)
{
	if (explain_file != NULL) {
		frozen_watch(true);
		boot_began = hy_now();
	} else if (options.rewind != REWIND_OFF) {
		frozen_watch(false);
	}
}

void explain_boot_over(void)
{
	boot_ns = hy_now() - boot_began;
	frozen_stop();
	if (explain_file == NULL) {
		return;
	}
	files = zend_hash_num_elements(&EG(included_files));
	snprintf(boot_at, sizeof boot_at, "%s:%u", zend_get_executed_filename(), zend_get_executed_lineno());
	notes = rewind_keep(sizeof *notes);
}

void explain_handler_begins(void)
{
	if (notes != NULL) {
		notes->handler_began = hy_now();
		notes->told = false;
	}
}

void explain_handler_over(void)
{
	if (notes == NULL) {
		return;
	}
	notes->handler_ns = hy_now() - notes->handler_began;
	notes->loaded = zend_hash_num_elements(&EG(included_files)) - files_of_snapshot;
	if (!handle_reached() && warmup_count < MAX_WARMUPS) {
		snprintf(warmups[warmup_count].path, sizeof warmups[warmup_count].path, "%s",
		         request.field[HY_FIELD_TARGET].at);
		warmups[warmup_count].us = notes->handler_ns / 1000;
		warmups[warmup_count++].status = SG(sapi_headers).http_response_code;
	}
}

static void send_warmup(const char *event, const char *target, uint64_t us, int status)
{
	struct line line = {0};
	add(&line, "{\"event\":\"%s\",\"us\":%lu,\"status\":%d,\"path\":", event, us, status == 0 ? 200 : status);
	add_string(&line, target);
	add(&line, "}");
	send_line(&line);
}

void explain_primed(const char *report, const char *target, uint64_t ns)
{
	if (report != NULL) {
		/* For this line alone: of nothing else that happens in such a process the report speaks. */
		explain_file = report;
		send_warmup("primed", target, ns / 1000, SG(sapi_headers).http_response_code);
		explain_file = NULL;
	}
}

void explain_destructors_begin(void)
{
	if (notes != NULL) {
		notes->destructors_began = hy_now();
	}
}

void explain_destructors_over(void)
{
	if (notes != NULL) {
		notes->destructors_ns = hy_now() - notes->destructors_began;
	}
}

/* Memory by kind. */

static void kind_of(const char *name, uintptr_t start, uintptr_t end, char *to, size_t size)
{
	const char *file = strrchr(name, '/');
	if (name[0] == '\0' || strncmp(name, "[anon", 5) == 0) {
		bool heap = false;
		for (uintptr_t at = start; at < end && !heap; at += PAGE) {
			heap = snapshot_block_size(at) != 0;
		}
		snprintf(to, size, "%s", heap ? "PHP heap" : "other memory");
	} else if (strcmp(name, "[heap]") == 0) {
		snprintf(to, size, "malloc");
	} else if (file != NULL && strncmp(file, "/libphp", 7) == 0) {
		snprintf(to, size, "%s", file + 1);
	} else {
		snprintf(to, size, "%s", strstr(name, ".so") != NULL ? "libraries" : file != NULL ? "the host" : name);
	}
}

struct sums {
	size_t count;
	struct {
		char kind[40];
		size_t pages, unused;
	} of[MAX_KINDS];
};

static void add_region(uintptr_t start, const char *name, size_t pages, size_t unused, void *to)
{
	struct sums *sums = to;
	char kind[40];
	kind_of(name, start, start + pages * PAGE, kind, sizeof kind);
	if (notes->mapping_count < sizeof notes->mappings / sizeof notes->mappings[0]) {
		struct mapping *mapping = &notes->mappings[notes->mapping_count++];
		*mapping = (struct mapping){.start = start, .end = start + pages * PAGE};
		memcpy(mapping->kind, kind, sizeof kind);
	}
	size_t i = 0;
	while (i < sums->count && strcmp(sums->of[i].kind, kind) != 0) {
		i++;
	}
	if (i == MAX_KINDS) {
		return;
	}
	if (i == sums->count) {
		memcpy(sums->of[sums->count++].kind, kind, sizeof kind);
	}
	sums->of[i].pages += pages - unused;
	sums->of[i].unused += unused;
}

static void send_snapshot(uint64_t ns)
{
	static struct sums sums;
	char why[256] = "";
	rewind_probe(why, sizeof why);
	sums.count = 0;
	notes->mapping_count = 0;
	rewind_each_region(add_region, &sums);
	struct line line = {0};
	add(&line, "{\"event\":\"snapshot\",\"us\":%lu,\"at\":", ns / 1000);
	add_string(&line, boot_at);
	add(&line, ",\"tracking_why\":");
	add_string(&line, why);
	add(&line, ",\"regions\":[");
	for (size_t i = 0; i < sums.count; i++) {
		add(&line, "%s{\"kind\":", i == 0 ? "" : ",");
		add_string(&line, sums.of[i].kind);
		add(&line, ",\"pages\":%zu,\"unused\":%zu}", sums.of[i].pages, sums.of[i].unused);
	}
	add(&line, "]}");
	send_line(&line);
}

/* By class, in the order in which they were made. */
static void send_destructors(void)
{
	uint32_t count;
	const uint32_t *numbers = destructors_of_boot(&count);
	for (uint32_t i = 0; i < count; i++) {
		const zend_class_entry *class = EG(objects_store).object_buckets[numbers[i]]->ce;
		uint32_t same = 0;
		bool told = false;
		for (uint32_t k = 0; k < count; k++) {
			if (EG(objects_store).object_buckets[numbers[k]]->ce == class) {
				told |= k < i;
				same++;
			}
		}
		if (!told) {
			struct line line = {0};
			add(&line, "{\"event\":\"destructor\",\"what\":");
			add_string(&line, ZSTR_VAL(class->name));
			add(&line, ",\"count\":%u}", same);
			send_line(&line);
		}
	}
}

void explain_boot_stands(bool snapshot, uint64_t ns)
{
	if (explain_file == NULL) {
		return;
	}
	struct line line = {0};
	add(&line, "{\"event\":\"boot\",\"us\":%lu,\"files\":%u}", boot_ns / 1000, files);
	send_line(&line);
	const struct frozen *frozen;
	size_t count = frozen_list(&frozen);
	for (size_t i = 0; i < count; i++) {
		line.len = 0;
		add(&line, "{\"event\":\"frozen\",\"kind\":\"%s\",\"what\":", frozen[i].kind);
		add_string(&line, frozen[i].what);
		if (frozen[i].at != NULL) {
			add(&line, ",\"at\":");
			add_string(&line, frozen[i].at);
		}
		add(&line, ",\"count\":%lu}", frozen[i].count);
		send_line(&line);
	}
	frozen_forget();
	for (size_t i = 0; i < warmup_count; i++) {
		send_warmup("warmup", warmups[i].path, warmups[i].us, warmups[i].status);
	}
	send_destructors();
	files_of_snapshot = zend_hash_num_elements(&EG(included_files));
	if (snapshot && notes != NULL) {
		send_snapshot(ns);
	}
}

/* Causes. */

/* In ascending order, as the rewinder found them. */
static size_t list_pages(void)
{
	size_t count = rewind_last_written(notes->ranges, MAX_RANGES), n = 0;
	for (size_t i = 0; i < count; i++) {
		for (uintptr_t at = notes->ranges[i].start; at < notes->ranges[i].end && n < MAX_WRITTEN; at += PAGE) {
			notes->pages[n++] = (struct page){.at = at};
		}
	}
	return n;
}

static int by_address(const void *a, const void *b)
{
	const struct page *left = a, *right = b;
	return (left->at > right->at) - (left->at < right->at);
}

static void find_objects(struct page *pages, size_t count)
{
	const zend_objects_store *store = &EG(objects_store);
	for (uint32_t i = 1; i < store->top; i++) {
		const zend_object *object = store->object_buckets[i];
		if (!IS_OBJ_VALID(object)) {
			continue;
		}
		struct page key = {.at = (uintptr_t)object & ~(PAGE - 1)};
		struct page *page = bsearch(&key, pages, count, sizeof *pages, by_address);
		if (page != NULL && page->class == NULL) {
			page->class = object->ce;
		}
	}
}

static bool within(uintptr_t page, const void *start, const void *end)
{
	return page + PAGE > (uintptr_t)start && page < (uintptr_t)end;
}

static bool in_arena(uintptr_t page)
{
	for (const zend_arena *arena = CG(arena); arena != NULL; arena = arena->prev) {
		if (within(page, arena, arena->end)) {
			return true;
		}
	}
	return false;
}

static void describe(const struct page *page, char *to, size_t size)
{
	const char *table = CG(map_ptr_real_base);
	size_t block = snapshot_block_size(page->at);
	if (within(page->at, EG(vm_stack), EG(vm_stack_end))) {
		snprintf(to, size, "variables of functions");
	} else if (in_arena(page->at)) {
		snprintf(to, size, "classes, and caches of their methods");
	} else if (within(page->at, table, table + CG(map_ptr_size) * sizeof(void *))) {
		snprintf(to, size, "table of caches of functions");
	} else if (page->class != NULL) {
		snprintf(to, size, "objects of the boot: %s", ZSTR_VAL(page->class->name));
	} else if (block > ZEND_MM_CHUNK_SIZE) {
		snprintf(to, size, "PHP heap: blocks above 2 MB");
	} else if (block >= PAGE) {
		snprintf(to, size, "PHP heap: blocks of %zu KB", block / 1024);
	} else if (block > 0) {
		snprintf(to, size, "PHP heap: blocks of %zu bytes", block);
	} else {
		snprintf(to, size, "other memory");
		for (size_t i = 0; i < notes->mapping_count; i++) {
			if (page->at >= notes->mappings[i].start && page->at < notes->mappings[i].end) {
				snprintf(to, size, "%s", notes->mappings[i].kind);
			}
		}
	}
}

/* Into notes->causes, most pages first; how many. Without qsort(), which takes memory for so many. */
static size_t find_causes(void)
{
	struct cause *causes = notes->causes;
	size_t count = list_pages(), found = 0;
	find_objects(notes->pages, count);
	for (size_t p = 0; p < count; p++) {
		struct cause cause = {.pages = 1};
		describe(&notes->pages[p], cause.what, sizeof cause.what);
		size_t i = 0;
		while (i < found && strcmp(causes[i].what, cause.what) != 0) {
			i++;
		}
		if (i < found) {
			causes[i].pages++;
		} else if (found < MAX_KINDS) {
			causes[found++] = cause;
		}
		for (; i > 0 && i < found && causes[i].pages > causes[i - 1].pages; i--) {
			cause = causes[i];
			causes[i] = causes[i - 1];
			causes[i - 1] = cause;
		}
	}
	return found;
}

void explain_connection(const char *peer, const char *kind, const char *why)
{
	if (explain_file == NULL) {
		return;
	}
	struct line line = {0};
	add(&line, "{\"event\":\"connection\",\"peer\":");
	add_string(&line, peer);
	add(&line, ",\"kind\":");
	add_string(&line, kind);
	add(&line, ",\"why\":");
	add_string(&line, why == NULL ? "" : why);
	add(&line, "}");
	send_line(&line);
}

static void begin_request(struct line *line)
{
	add(line, "{\"event\":\"request\",\"us\":%lu,\"destructors_ns\":%lu,\"loaded\":%u,\"causes\":[",
	    notes->handler_ns / 1000, notes->destructors_ns, notes->loaded);
}

void explain_forked(void)
{
	if (notes == NULL || explain_file == NULL) {
		return;
	}
	struct line line = {0};
	begin_request(&line);
	add(&line, "]}");
	send_line(&line);
}

void explain_rewound(void)
{
	if (notes == NULL || notes->mapping_count == 0) {
		return;
	}
	const struct cause *causes = notes->causes;
	size_t count = find_causes(), written = rewind_counters()->last_cold;
	struct line line = {0};
	begin_request(&line);
	for (size_t i = 0; i < count; i++) {
		add(&line, "%s{\"what\":", i == 0 ? "" : ",");
		add_string(&line, causes[i].what);
		add(&line, ",\"pages\":%zu}", causes[i].pages);
		written -= MIN(written, causes[i].pages);
	}
	if (written > 0) {
		add(&line, "%s{\"what\":\"elsewhere\",\"pages\":%zu}", count == 0 ? "" : ",", written);
	}
	add(&line, "]}");
	send_line(&line);
	notes->told = true;
}

void explain_retires(enum hy_retired why)
{
	if (notes == NULL || worker_start_runs() || why < HY_RETIRED_REWIND_THREADS) {
		return;
	}
	struct line line = {0};
	if (notes->told) { /* it was found out after the rewind */
		add(&line, "{\"event\":\"retired\",\"why\":%d}", (int)why);
	} else {
		add(&line, "{\"event\":\"request\",\"us\":%lu,\"retired\":%d,\"causes\":[]}", notes->handler_ns / 1000,
		    (int)why);
	}
	send_line(&line);
}
