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

/* libc, and of its dynamic section (System V ABI, gABI chapter 5; DT_GNU_HASH as GNU binutils write it). */
struct libc {
	uintptr_t base, low, high;
	const Elf64_Sym *symbols;
	const char *names;
	const uint32_t *hash;
};
static struct libc libc;

static bool asked_for;
bool *rewind_libc_asked_for = &asked_for;

static uintptr_t relocated(uintptr_t base, uintptr_t address)
{
	return address < base ? base + address : address;
}

static int find_libc(struct dl_phdr_info *info, size_t size, void *to)
{
	struct libc *found = to;
	const char *slash = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');
	if (slash == NULL || strcmp(slash, "/libc.so.6") != 0) {
		return 0;
	}
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
	return 1;
}

/* A function of libc's. dlsym() and dlvsym() themselves cannot be asked for: by those names the host's are found. */
static void *look_into_libc(const char *name)
{
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
			return (void *)(libc.base + symbol->st_value);
		}
		if (chain[i - first] & 1) {
			break;
		}
	}
	return NULL;
}

static void look_up(void)
{
	dl_iterate_phdr(find_libc, &libc);
	*(void **)&libc_dlsym = look_into_libc("dlsym");
	*(void **)&libc_dlvsym = look_into_libc("dlvsym");
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
	void *own = libc_dlsym(RTLD_DEFAULT, name);
	return is_ours(own) ? own : NULL;
}

/* Whose next one RTLD_NEXT is, libc tells by who has called: so this must be the last thing here, a jump. */
EXPORT void *dlsym(void *restrict library, const char *restrict name)
{
	if (libc_dlsym == NULL) {
		look_up();
	}
	if (library == RTLD_DEFAULT) {
		void *found = libc_dlsym(library, name);
		*rewind_libc_asked_for |= is_of_libc(found) || is_ours(found);
		return found;
	}
	if (library != RTLD_NEXT) {
		void *found = libc_dlsym(library, name);
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
	using_libraries();
	if (libc_dlmopen == NULL) {
		*(void **)&libc_dlmopen = interpose_next("dlmopen");
	}
	return libc_dlmopen(space, path, mode);
}

EXPORT int dlclose(void *library)
{
	using_libraries();
	if (libc_dlclose == NULL) {
		*(void **)&libc_dlclose = interpose_next("dlclose");
	}
	return libc_dlclose(library);
}
