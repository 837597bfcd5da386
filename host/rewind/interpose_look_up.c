/*
 * Who asks libc for a function by its name gets the host's, if it has one: FFI::cdef(…, 'libc.so.6') does, and what is
 * loaded with RTLD_DEEPBIND would.
 */
#include "interpose.h"

#include <elf.h>
#include <link.h>
#include <string.h>

static void *(*libc_dlopen)(const char *, int);
static void *(*libc_dlmopen)(Lmid_t, const char *, int);
static int (*libc_dlclose)(void *);
static void *(*libc_dlsym)(void *, const char *);
static void *(*libc_dlvsym)(void *, const char *, const char *);

/* libc or the host, and of its dynamic section (System V ABI, gABI chapter 5; DT_GNU_HASH as GNU binutils write it). */
struct object {
	uintptr_t base, low, high;
	const Elf64_Sym *symbols;
	const char *names;
	const uint32_t *hash;
};
static struct object libc, host;

/* Functions of libc's and the host's in their place: libc has many by several names, as write() and __write(), of which
 * the host has one. */
static struct twin {
	const void *of_libc;
	void *own;
} twins[512];
static size_t twin_count;

static bool asked_for;
bool *rewind_libc_asked_for = &asked_for;

static uintptr_t relocated(uintptr_t base, uintptr_t address)
{
	return address < base ? base + address : address;
}

static void describe(const struct dl_phdr_info *info, struct object *found)
{
	found->base = info->dlpi_addr;
	found->low = UINTPTR_MAX;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const Elf64_Phdr *header = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + header->p_vaddr;
		if (header->p_type == PT_LOAD) {
			found->low = start < found->low ? start : found->low;
			found->high = start + header->p_memsz > found->high ? start + header->p_memsz : found->high;
		}
		for (const Elf64_Dyn *one = (const Elf64_Dyn *)start; header->p_type == PT_DYNAMIC && one->d_tag != DT_NULL;
		     one++) {
			uintptr_t at = relocated(info->dlpi_addr, one->d_un.d_ptr);
			if (one->d_tag == DT_SYMTAB) {
				found->symbols = (const Elf64_Sym *)at;
			} else if (one->d_tag == DT_STRTAB) {
				found->names = (const char *)at;
			} else if (one->d_tag == DT_GNU_HASH) {
				found->hash = (const uint32_t *)at;
			}
		}
	}
}

static int find_objects(struct dl_phdr_info *info, size_t size, void *unused)
{
	const char *slash = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');
	if (host.high == 0) {
		describe(info, &host); /* the executable comes first */
	} else if (slash != NULL && strcmp(slash, "/libc.so.6") == 0) {
		describe(info, &libc);
		return 1;
	}
	return 0;
}

/* Functions of libc's, one in each version that it has; the first that there is. dlsym() and dlvsym() themselves cannot
 * be asked for: by those names the host's are found. With `own` each is noted as its twin. */
static void *look_into_libc(const char *name, void *own)
{
	void *found = NULL;
	if (libc.hash == NULL || libc.symbols == NULL || libc.names == NULL) {
		return NULL;
	}
	uint32_t wanted = 5381;
	for (const char *c = name; *c != '\0'; c++) {
		wanted = wanted * 33 + (unsigned char)*c;
	}
	uint32_t buckets = libc.hash[0], first = libc.hash[1], words = libc.hash[2];
	const uint32_t *bucket = libc.hash + 4 + 2 * (size_t)words, *chain = bucket + buckets;
	for (uint32_t i = buckets == 0 ? 0 : bucket[wanted % buckets]; i >= first && i != 0; i++) {
		const Elf64_Sym *symbol = &libc.symbols[i];
		if ((chain[i - first] | 1) == (wanted | 1) && strcmp(libc.names + symbol->st_name, name) == 0 &&
		    ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF) {
			void *at = (void *)(libc.base + symbol->st_value);
			found = found == NULL ? at : found;
			if (own != NULL && twin_count == sizeof twins / sizeof twins[0]) {
				abort(); /* the host has more functions than that */
			}
			if (own != NULL) {
				twins[twin_count++] = (struct twin){at, own};
			}
		}
		if (chain[i - first] & 1) {
			break;
		}
	}
	return found;
}

/* The hash table holds what the host defines, and nothing that it only uses. */
static void find_twins(void)
{
	if (host.hash == NULL || host.symbols == NULL || host.names == NULL) {
		return;
	}
	uint32_t buckets = host.hash[0], first = host.hash[1], words = host.hash[2];
	const uint32_t *bucket = host.hash + 4 + 2 * (size_t)words, *chain = bucket + buckets;
	for (uint32_t b = 0; b < buckets; b++) {
		for (uint32_t i = bucket[b]; i >= first && i != 0; i++) {
			const Elf64_Sym *symbol = &host.symbols[i];
			if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF) {
				look_into_libc(host.names + symbol->st_name, (void *)(host.base + symbol->st_value));
			}
			if (chain[i - first] & 1) {
				break;
			}
		}
	}
}

static void look_up(void)
{
	dl_iterate_phdr(find_objects, NULL);
	find_twins();
	*(void **)&libc_dlsym = look_into_libc("dlsym", NULL);
	*(void **)&libc_dlvsym = look_into_libc("dlvsym", NULL);
	if (libc_dlsym == NULL || libc_dlvsym == NULL) {
		abort(); /* libc without one of its own functions */
	}
}

static bool is_of_libc(const void *found)
{
	return (uintptr_t)found >= libc.low && (uintptr_t)found < libc.high;
}

static bool is_ours(const void *found)
{
	extern const char __executable_start, _end;
	return (const char *)found >= &__executable_start && (const char *)found < &_end;
}

/* What `found` of libc's is to be here; NULL: what it is. */
static void *own_version(const void *found, const char *name)
{
	if (!is_of_libc(found)) {
		return NULL;
	}
	*rewind_libc_asked_for = true;
	for (size_t i = 0; i < twin_count; i++) {
		if (twins[i].of_libc == found) {
			return twins[i].own;
		}
	}
	/* What libc chooses when it is loaded (STT_GNU_IFUNC) lies elsewhere than its symbol says. */
	void *own = libc_dlsym(RTLD_DEFAULT, name);
	return is_ours(own) ? own : NULL;
}

/* Whose next one RTLD_NEXT is, libc tells by who has called: so this must be the last thing here, a jump. */
EXPORT void *dlsym(void *restrict library, const char *restrict name)
{
	if (libc_dlsym == NULL) {
		look_up();
	}
	if (library != RTLD_NEXT) {
		void *found = libc_dlsym(library, name);
		*rewind_libc_asked_for |= library == RTLD_DEFAULT && is_ours(found);
		void *own = found == NULL ? NULL : own_version(found, name);
		return own != NULL ? own : found; /* and what dlerror() has to say */
	}
	return libc_dlsym(library, name);
}

EXPORT void *dlvsym(void *restrict library, const char *restrict name, const char *restrict version)
{
	if (libc_dlvsym == NULL) {
		look_up();
	}
	if (library != RTLD_NEXT) {
		void *found = libc_dlvsym(library, name, version);
		void *own = found == NULL ? NULL : own_version(found, name);
		return own != NULL ? own : found;
	}
	return libc_dlvsym(library, name, version);
}

static void using_libraries(void)
{
	struct control *c = watching();
	if (c != NULL) {
		c->libraries_used = true;
	}
}

/*
 * PHP loads extensions so that they and their libraries (libcurl, libpq) find libc's functions before the host's. That
 * protects them from names that a web server happens to have; this process has none of its own to offer but these. Also
 * where nothing is rewound: who takes the timer of the time limit must be seen (time_limit.c).
 */
EXPORT void *dlopen(const char *path, int mode)
{
	using_libraries();
	if (libc_dlopen == NULL) {
		*(void **)&libc_dlopen = interpose_next("dlopen");
	}
	return libc_dlopen(path, mode & ~RTLD_DEEPBIND);
}

EXPORT void *dlmopen(Lmid_t space, const char *path, int mode)
{
	struct control *c = watching();
	using_libraries();
	if (c != NULL && space != LM_ID_BASE) {
		c->doubt = REWIND_LIBRARY; /* a libc of its own, in which nothing is the host's */
	}
	if (libc_dlmopen == NULL) {
		*(void **)&libc_dlmopen = interpose_next("dlmopen");
	}
	return libc_dlmopen(space, path, mode & ~RTLD_DEEPBIND);
}

EXPORT int dlclose(void *library)
{
	using_libraries();
	if (libc_dlclose == NULL) {
		*(void **)&libc_dlclose = interpose_next("dlclose");
	}
	return libc_dlclose(library);
}
