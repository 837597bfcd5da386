/*
 * Which temporary files of the boot have a name, and go with their worker. PHP removes tmpfile()s when it closes them,
 * which a worker does not that ends: it removes them itself. Those of one that is killed the zygote removes, of which
 * workers tell it by memory that they share (16 each, with names below 256 bytes); it believes of that only what stat()
 * confirms.
 */
#include "boot_files.h"
#include "engine.h"

#include <sys/mman.h>
#include <unistd.h>

/* What the zygote removes after a worker's death. */
#define NAMES_TOLD 16
struct told {
	struct {
		uint64_t device, inode;
		char name[256]; /* empty: none */
	} file[NAMES_TOLD];
};
/* By number of worker, shared by all; NULL: there is no memory for it. */
static struct told *told;

/* php and what is random, for its owner only, and nowhere else. */
static bool has_temporary_name(const char *path, const struct stat *st)
{
	const char *name = strrchr(path, '/');
	return name != NULL && strncmp(name, "/php", 4) == 0 && strlen(name + 1) == ENGINE_TEMPORARY_NAME &&
	       (st->st_mode & 0777) == 0600 && st->st_nlink == 1 && boot_files_leads_to(path, st->st_dev, st->st_ino);
}

void boot_files_share(void)
{
	size_t size = hy_ring_max_workers() * sizeof *told;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	told = at == MAP_FAILED ? NULL : at;
}

void boot_files_tell(void)
{
	struct told *own = told == NULL || !zygote_is_worker() ? NULL : &told[hy_ring_worker()];
	struct boot_file *files;
	size_t file_count = boot_files_list(&files), count = 0;
	for (size_t i = 0; own != NULL && i < file_count && count < NAMES_TOLD; i++) {
		const struct boot_file *file = &files[i];
		if (file->kind == TEMPORARY && file->name[0] != '\0' && strlen(file->name) < sizeof own->file[0].name) {
			own->file[count].device = file->device;
			own->file[count].inode = file->inode;
			strcpy(own->file[count++].name, file->name);
		}
	}
}

void boot_files_bury(uint32_t worker)
{
	for (size_t i = 0; told != NULL && i < NAMES_TOLD; i++) {
		char name[sizeof told->file[0].name];
		struct stat st;
		memcpy(name, told[worker].file[i].name, sizeof name);
		name[sizeof name - 1] = '\0';
		told[worker].file[i].name[0] = '\0';
		if (name[0] == '/' && lstat(name, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
		    st.st_dev == told[worker].file[i].device && st.st_ino == told[worker].file[i].inode &&
		    has_temporary_name(name, &st)) {
			unlink(name);
		}
	}
}

void boot_files_remove(void)
{
	struct boot_file *files;
	size_t count = boot_files_list(&files);
	for (size_t i = 0; i < count; i++) {
		const struct boot_file *file = &files[i];
		struct stat st;
		if (file->kind == TEMPORARY && file->name[0] != '\0' && lstat(file->name, &st) == 0 &&
		    st.st_dev == file->device && st.st_ino == file->inode) {
			unlink(file->name);
		}
	}
}
