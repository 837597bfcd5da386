/*
 * What asked_once_walk.c has seen in the project's own code, and, at the end of the boot, which of it has run. What a
 * function does is no reason unless it has run. The first reason is kept; all else is forgotten then.
 */
#include "asked_once.h"
#include "asked.h"
#include "host.h"
#include "words.h"

#include "zend_compile.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At the top level of a file: why the boot must not go by it; empty: nothing was seen. */
static char seen[LONGEST_REASON];

/* Functions of the project's own that would be a reason if they were called before the request: why, by name_of(). */
static HashTable of_functions;
/* The same of functions without a name, by their numbers. */
static char **of_closures;
static size_t closures_count;
/* Lines that run only where something is so that may be otherwise later. */
struct lines {
	const char *file;
	uint32_t first, last;
};
static struct lines *of_lines;
static size_t lines_count;
/* Their files. */
static char **files;
static size_t files_count;
/* The one that is looked into. */
static const char *file;

/* A list with room for one more of `size` bytes; it grows where their number is a power of two. */
static void *one_more(void *list, size_t *count, size_t size)
{
	if ((*count & (*count - 1)) == 0) {
		list = perealloc(list, size * (*count == 0 ? 1 : *count * 2), true);
	}
	++*count;
	return list;
}

static void forget_why(zval *why)
{
	free(Z_PTR_P(why));
}

static void forget_all(void)
{
	for (size_t i = 0; i < files_count; i++) {
		free(files[i]);
	}
	for (size_t i = 0; i < closures_count; i++) {
		free(of_closures[i]);
	}
	free(files);
	free(of_closures);
	free(of_lines);
	files = of_closures = NULL;
	of_lines = NULL;
	files_count = closures_count = lines_count = 0;
	zend_hash_destroy(&of_functions);
}

/* A function, by where it stands; no two have the same. A trait's has no name: classes may have it by another. */
static size_t name_of(char *to, size_t size, const char *in, uint32_t line, const char *name)
{
	int len = snprintf(to, size, "%" PRIu32 " %s %s", line, name, in);
	return len < 0 ? 0 : (size_t)len < size ? (size_t)len : size - 1;
}

void asked_once_note_lines(zend_ast **trees, uint32_t count)
{
	uint32_t first = UINT32_MAX, last = 0;
	for (uint32_t i = 0; i < count; i++) {
		ast_span(trees[i], &first, &last);
	}
	if (first <= last) {
		of_lines = one_more(of_lines, &lines_count, sizeof of_lines[0]);
		of_lines[lines_count - 1] = (struct lines){.file = file, .first = first, .last = last};
	}
}

/* enum what, for people. */
static const char *const said[] = {
    [ASKS] = LOOKS,
    [DRAWS] = "draws or reads the clock",
    [ANSWERS] = "answers, or turns somebody away, where something is so that may be otherwise later",
};

/* The project's front controller, where a boot script of ours includes it whole, as symfony/runtime does; and whether
 * that is looked into. */
static char front_controller[PATH_MAX];

bool asked_once_in_front_controller(void)
{
	return strcmp(file, front_controller) == 0;
}

const char *asked_once_file(void)
{
	return file;
}

void asked_once_note_file(const char *name)
{
	files = one_more(files, &files_count, sizeof files[0]);
	file = files[files_count - 1] = pestrdup(name, true);
}

void asked_once_note_reason(const char *why)
{
	if (seen[0] == '\0') {
		snprintf(seen, sizeof seen, "%s", why);
	}
}

const char *asked_once_noted(void)
{
	return seen[0] != '\0' ? seen : NULL;
}

void asked_once_note(enum what what, const char *sign, const char *name, zend_ast *at, struct place place)
{
	if ((place.function == NULL && seen[0] != '\0') || (place.closure != NULL && *place.closure != NULL)) {
		return;
	}
	bool leaves = what == ANSWERS && (strcmp(name, "exit") == 0 || word_aborts(name));
	bool decides = front_controller_boots() || (what == ANSWERS && asked_once_in_front_controller());
	if (what != ASKS && !leaves && (place.function != NULL || !decides)) {
		/* What a function draws is told by the log (frozen_tell()), and what it prints or throws is its own
		 * affair. Configuration that is read once may say the year, and include what is there. */
		return;
	}
	char why[sizeof seen];
	snprintf(why, sizeof why, "%s:%" PRIu32 " %s (%s%s) " ONCE, file, zend_ast_get_lineno(at), said[what], sign, name);
	if (place.function == NULL) {
		memcpy(seen, why, sizeof seen);
		return;
	}
	if (place.closure != NULL) {
		*place.closure = pestrdup(why, true);
		return;
	}
	char name_of_function[PATH_MAX + 256];
	size_t len = name_of(name_of_function, sizeof name_of_function, file, place.function->start_lineno,
	                     place.of_trait ? "" : ZSTR_VAL(place.function->name));
	if (!zend_hash_str_exists(&of_functions, name_of_function, len)) {
		zend_hash_str_add_ptr(&of_functions, name_of_function, len, pestrdup(why, true));
	}
}

size_t asked_once_note_closure(char *why)
{
	of_closures = one_more(of_closures, &closures_count, sizeof of_closures[0]);
	of_closures[closures_count - 1] = why;
	return closures_count - 1;
}

void asked_once_note_ran(size_t closure)
{
	if (closure < closures_count) {
		asked_once_note_reason(of_closures[closure]);
	}
}

void asked_once_notes_begin(void)
{
	const char *project = options_env("HAYATE_PROJECT");
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/public/index.php", project);
	if (realpath(path, front_controller) == NULL) {
		front_controller[0] = '\0';
	}
	zend_hash_init(&of_functions, 8, NULL, forget_why, true);
}

/* ---- what has run ---- */

static const char *of_called(HashTable *table)
{
	zend_function *function;
	ZEND_HASH_FOREACH_PTR(table, function)
	{
		if (function->type != ZEND_USER_FUNCTION || function->common.function_name == NULL ||
		    RUN_TIME_CACHE(&function->op_array) == NULL) {
			continue;
		}
		const zend_op_array *code = &function->op_array;
		const char *names[] = {ZSTR_VAL(code->function_name), ""};
		for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
			char name[PATH_MAX + 256];
			size_t len = name_of(name, sizeof name, ZSTR_VAL(code->filename), code->line_start, names[i]);
			const char *why = zend_hash_str_find_ptr(&of_functions, name, len);
			if (why != NULL) {
				return why;
			}
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}

static void look_at_functions(void)
{
	if (zend_hash_num_elements(&of_functions) == 0) {
		return;
	}
	const char *found = of_called(EG(function_table));
	zend_class_entry *of;
	ZEND_HASH_FOREACH_PTR(EG(class_table), of)
	{
		if (found != NULL) {
			break;
		}
		if (of->type == ZEND_USER_CLASS) {
			found = of_called(&of->function_table);
		}
	}
	ZEND_HASH_FOREACH_END();
	if (found != NULL) {
		snprintf(seen, sizeof seen, "%s", found);
	}
}

static void look_at_stack(void)
{
	for (const zend_execute_data *frame = EG(current_execute_data); frame != NULL; frame = frame->prev_execute_data) {
		if (frame->func == NULL || !ZEND_USER_CODE(frame->func->type) || frame->opline == NULL) {
			continue;
		}
		const char *of = ZSTR_VAL(frame->func->op_array.filename);
		uint32_t line = frame->opline->lineno;
		for (size_t i = 0; i < lines_count; i++) {
			if (of_lines[i].first <= line && line <= of_lines[i].last && strcmp(of_lines[i].file, of) == 0) {
				snprintf(seen, sizeof seen,
				         "%s:%" PRIu32
				         " comes to the request only where something is so that may be otherwise later (if, "
				         "catch, an early return) " ONCE,
				         of, line);
				return;
			}
		}
	}
}

void asked_once_notes_over(void)
{
	if (seen[0] == '\0') {
		look_at_functions();
	}
	if (seen[0] == '\0' && front_controller_boots()) {
		look_at_stack();
	}
	forget_all();
}
