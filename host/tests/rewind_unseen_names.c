/*
 * libc's names: that each function which the host replaces is the host's by all of them, and that somebody has looked
 * at each which sets something.
 */
#include "rewind_unseen.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

/* libc has many functions by several names. Whatever is one that the host replaces is the host's by each of them. */
static void each_name_of_a_function(enum rewind_tracking tracking)
{
	extern const char __executable_start, _end;
	struct link_map *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL, *named_close = NULL;
	need(libc != NULL, "libc");
	for (const Elf64_Dyn *one = libc->l_ld; one->d_tag != DT_NULL; one++) {
		symbols = one->d_tag == DT_SYMTAB ? (const Elf64_Sym *)one->d_un.d_ptr : symbols;
		names = one->d_tag == DT_STRTAB ? (const char *)one->d_un.d_ptr : names;
	}
	/* The names follow the symbols, as linkers lay them out. */
	size_t count = (size_t)(names - (const char *)symbols) / sizeof *symbols, replaced = 0, twins = 0;
	for (size_t i = 0; i < count; i++) {
		const char *own = dlsym(RTLD_DEFAULT, names + symbols[i].st_name), *name = names + symbols[i].st_name;
		bool function = ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF;
		if (!function || own < &__executable_start || own >= &_end) {
			continue;
		}
		replaced++;
		for (size_t k = 0; k < count; k++) {
			const char *other = names + symbols[k].st_name;
			if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC || symbols[k].st_value != symbols[i].st_value) {
				continue;
			}
			const char *found = dlsym(libc, other), *default_one = dlsym(RTLD_DEFAULT, other);
			/* A name of former times, that only programs of those times can ask for. */
			found = found == NULL ? default_one : found;
			if (found == NULL) {
				continue; /* and that not even those find that ask by name */
			}
			bool ours = found >= &__executable_start && found < &_end && default_one >= &__executable_start &&
			            default_one < &_end;
			if (!ours) {
				fprintf(stderr, "%s() is libc's, %s() is not\n", other, name);
				_exit(1);
			}
			twins += strcmp(other, name) != 0;
			named_close = strcmp(other, "__close") == 0 ? other : named_close;
		}
	}
	if (replaced < 100 || twins < 20 || named_close == NULL) {
		wrong("libc's names were not found");
	}
}

/*
 * What a process is to the kernel is set by functions whose names say so. Each that this libc has is the host's, or is
 * among those of which somebody has looked at what they do. A newer libc may have others: then this fails.
 */
static void each_function_that_sets_something(enum rewind_tracking tracking)
{
	static const char *const beginnings[] = {
	    "set",      "sched_set", "pthread_set", "pkey_",       "creat",  "lockf",     "initgroups", "ulimit",
	    "eventfd_", "tcset",     "tcflush",     "tcflow",      "tcsend", "chroot",    "iopl",       "ioperm",
	    "prlimit",  "nice",      "unshare",     "personality", "sigset", "sigignore", "sigvec"};
	/* Memory only, or the world outside. */
	static const char *const harmless[] = {"setbuf",
	                                       "setbuffer",
	                                       "setlinebuf",
	                                       "setvbuf",
	                                       "setenv",
	                                       "setlocale",
	                                       "setjmp",
	                                       "setcontext",
	                                       "setlogmask",
	                                       "setstate",
	                                       "setstate_r",
	                                       "setaliasent",
	                                       "setfsent",
	                                       "setgrent",
	                                       "sethostent",
	                                       "setmntent",
	                                       "setnetent",
	                                       "setnetgrent",
	                                       "setprotoent",
	                                       "setpwent",
	                                       "setrpcent",
	                                       "setservent",
	                                       "setsgent",
	                                       "setspent",
	                                       "setttyent",
	                                       "setusershell",
	                                       "setutent",
	                                       "setutxent",
	                                       "setdomainname",
	                                       "sethostid",
	                                       "sethostname",
	                                       "settimeofday",
	                                       "setxattr",
	                                       "setlogin",
	                                       "pthread_setspecific",
	                                       "pthread_setattr_default_np",
	                                       "pthread_setcancelstate",
	                                       "pthread_setcanceltype",
	                                       "pthread_setconcurrency",
	                                       "pkey_get"};
	extern const char __executable_start, _end;
	struct link_map *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL;
	need(libc != NULL, "libc");
	for (const Elf64_Dyn *one = libc->l_ld; one->d_tag != DT_NULL; one++) {
		symbols = one->d_tag == DT_SYMTAB ? (const Elf64_Sym *)one->d_un.d_ptr : symbols;
		names = one->d_tag == DT_STRTAB ? (const char *)one->d_un.d_ptr : names;
	}
	size_t count = (size_t)(names - (const char *)symbols) / sizeof *symbols, found = 0, missing = 0;
	for (size_t i = 0; i < count; i++) {
		const char *name = names + symbols[i].st_name;
		bool sets = false, known = false;
		for (size_t k = 0; k < sizeof beginnings / sizeof beginnings[0]; k++) {
			sets |= strncmp(name, beginnings[k], strlen(beginnings[k])) == 0;
		}
		for (size_t k = 0; k < sizeof harmless / sizeof harmless[0]; k++) {
			known |= strcmp(name, harmless[k]) == 0;
		}
		if (!sets || ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || symbols[i].st_shndx == SHN_UNDEF) {
			continue;
		}
		const char *own = dlsym(RTLD_DEFAULT, name);
		found++;
		if (!known && own != NULL && (own < &__executable_start || own >= &_end)) {
			fprintf(stderr, "%s() is libc's, and nobody has said what it does\n", name);
			missing++;
		}
	}
	if (found < 60 || missing > 0) {
		wrong("not all functions of libc's that set something are known");
	}
}

const struct look looks_at_names[] = {
    {"each name of a function", each_name_of_a_function},
    {"each function that sets something", each_function_that_sets_something},
    {0},
};
