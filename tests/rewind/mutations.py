"""Each repair of rewinding, taken out of a copy of the host: a test must fail. By hand:

    HAYATE_BIN=…/hayate /usr/bin/python3 tests/rewind/mutations.py [--torture | --only-torture] [--its-kinds] [WORD …]

Nothing of this is in the host itself: a copy of host/ is changed, built, and put beside a copy of the server. `--torture`
plays random programs against it as well (HAYATE_TORTURE_PROGRAMS at most, 48 unless said), `--only-torture` those alone,
and says how many were played when one failed; with `--its-kinds` those about the things that KINDS names for a mutation,
which find it sooner than all of them do. HAYATE_KERNEL is the package of a kernel with soft-dirty bits, without
which what only such a kernel shows is left out (tests/rewind/kernel). Words choose mutations by what their names contain. Ends with 1 when
nothing finds a mutation, and with 2 when one does not fit the source any more.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PHP = os.environ.get("HAYATE_PHP", "8.2")
HOST = REPOSITORY / "host"
#: The tests of a mutation that only a kernel with soft-dirty bits can find: rewind_hot there.
KERNEL = "kernel"


@dataclasses.dataclass(frozen=True)
class Mutation:
    """`point` is the place in the list of what a rewound request owes (0: none of it); `tests` are what has to find it.

    `also` are further places, where a repair stands twice: file, old, new.
    """

    point: int
    name: str
    file: str
    old: str
    new: str
    tests: str
    also: tuple[tuple[str, str, str], ...] = ()


def _m(point: int, name: str, file: str, old: str, new: str, tests: str, *also: tuple[str, str, str]) -> Mutation:
    return Mutation(point, name, file, old, new, tests, also)


MUTATIONS = [
    # 1: destructors and shutdown functions
    _m(1, "no destructors", "lifecycle.c", "\t\tdestructors_call();\n", "", "test_endings.py"),
    _m(1, "no functions registered once", "shutdown.c", "return one->again && !one->repeated;", "return false;", "test_endings.py"),
    _m(1, "no functions of the boot", "shutdown.c", "lent != NULL ? lent : of_boot;", "NULL;", "test_endings.py"),
    _m(1, "streams of the boot stay open", "cleanup.c", "\tnote_streams();\n", "", "test_endings.py"),
    _m(1, "objects of the boot are pinned", "snapshot.c", "if (!IS_OBJ_VALID(object)) {\n\t\t\tcontinue;\n\t\t}\n\t\tif (cleanup_reaches_outside(object)) {", "if (!IS_OBJ_VALID(object)) {\n\t\t\tcontinue;\n\t\t}\n\t\tif (true) {", "test_endings.py"),
    _m(1, "nobody looks at residue", "warmup.c", "left != NULL && one->times >= MOST_TIMES", "false", "test_handed_in.py -k worker-warmed"),
    _m(1, "a boot that is given up just dies", "again.c", "\tif (!fatal) {", "\tif (false) {", "test_libraries.py -k memory-lazy-warm"),
    _m(1, "a singleton's function is given up", "shutdown.c", "one->repeated || is_of_one_request(&one->function);", "false;", "test_endings.py"),
    _m(1, "what a request makes of a file is not seen", "cleanup.c", "return one->always || (is_file(stream) && has_rest(stream, writes_to(stream))) ? resource : NULL;", "return one->always ? resource : NULL;", "test_held_back.py -k request_has"),
    _m(1, "libc holds back", "cleanup.c", " || boot_files_has_buffer(stream)", "", "test_held_back.py -k request_has"),
    _m(1, "cookies and archives are lost", "cleanup.c", "\tstep(leftovers_hand_in);\n", "", "test_order.py"),
    # 2: SQLite
    _m(2, "statements stay half-read", "cleanup.c", "\tstep(sqlite_end_request);\n", "", "test_sqlite.py"),
    _m(2, "a busy boot is rewound", "decline.c", "keeps && zygote_is_worker() ? NULL : sqlite_left_open()", "NULL", "test_sqlite.py"),
    _m(2, "a lost lock is called another loss", "handle.c", "if (sqlite_loses_locks()) {", "if (false) {", "test_sqlite.py"),
    _m(2, "a lost lock is trusted", "handle.c", "if (sqlite_loses_locks()) {", "if (false) {", "test_sqlite.py", ("rewind/held.c", "!= 0 || lost) {", "!= 0) {")),
    # 3: directories and files
    _m(3, "files are shared", "zygote.c", "plain ? rewind_own_file(fd) : 0", "plain && false ? rewind_own_file(fd) : 0", "test_directories.py"),
    _m(3, "files are shared by forks", "rewind/descriptors.c", "(SYS3(SYS_lseek, fd, c->offsets[i].at, SEEK_SET) < 0 || rewind_own_file(fd) != 0)", "SYS3(SYS_lseek, fd, c->offsets[i].at, SEEK_SET) < 0", "test_directories.py"),
    _m(3, "256 positions", "rewind/descriptors.c", "if (has_offset && file && at >= 0) {", "if (has_offset && file && at >= 0 && c->offset_count < 256) {", "test_directories.py"),
    _m(3, "a rotated log is written on", "lifecycle.c", "\t\tboot_files_look(BOOT_FILES_UNLOCKED);\n", "", "test_rotated.py"),
    _m(3, "what is open to be written is rewound", "boot_files_left.c", "!(writer->flags & O_APPEND)", "false", "test_opened_again.py -k made"),
    _m(3, "what the boot has read from is rewound", "boot_files_left.c", "(writer->flags & O_ACCMODE) == O_RDWR && was_read(writer)", "false", "test_opened_again.py -k read"),
    _m(3, "what the boot empties is rewound", "rewind/openings.c", "one->emptied = true;", "one->emptied = false;", "test_opened_again.py -k emptied"),
    _m(3, "cookies of one visitor are written over another's", "unknown.c", "IS_OBJ_VALID(object) ? object->ce : NULL;\n\t\twhile", "NULL;\n\t\twhile", "test_what_was_read.py"),
    _m(3, "lists of archives stay from the boot", "handle.c", "\t\tarchives_forget();\n", "", "test_archives.py -k boot-on-shared"),
    _m(3, "lists of archives stay from warm-up requests", "lifecycle.c", "\t\tarchives_forget();\n", "", "test_archives.py -k request-on-shared"),
    _m(3, "archives that are open are rewound", "decline.c", "keeps ? NULL : archives_left()", "NULL", "test_archives.py -k object"),
    _m(3, "names of archives are forgotten", "archives.c", "return is_code(path) && is_protected(ZSTR_VAL(path));", "return false;", "test_archives.py -k library"),
    _m(3, "what is code is not written to", "archives.c", "return is_code(path) && is_protected(ZSTR_VAL(path));", "return is_code(path);", "test_archives.py -k code_in"),
    _m(3, "a name that was given is not missed", "archives.c", "!zend_hash_exists(names(), one->name)", "false", "test_archives.py -k given_a_name"),
    _m(1, "libcurl writes to what is closed", "cleanup.c", "\tclose_all(false);\n", "\tclose_all(false);\n\tclose_all(true);\n", "test_held_back.py -k curl_says"),
    _m(1, "libcurl writes to what a request has closed", "leftovers.c", "if (has_closed_stream(object)) {", "if (has_closed_stream(object) && false) {", "test_held_back.py -k curl_says"),
    _m(1, "what the loop has registered is lost", "shutdown.c", "if (between != NULL) {", "if (false) {", "test_endings.py -k booted_anew"),
    _m(2, "a database to read costs the warm-up", "decline.c", "boot_again(HY_AGAIN_PRIVATE, why, false);\n\t}\n\tif (lifecycle_failed()", "warmup_failed(why, false);\n\t}\n\tif (lifecycle_failed()", "test_sqlite.py -k opens_and_keeps"),
    _m(4, "a set that is gone is held", "rewind/interpose_locks.c", "command == IPC_RMID || command == SETALL", "command == SETALL", "test_boot_locks.py -k held_no_more"),
    _m(4, "a duplicate's lock is taken from a child", "rewind/held.c", "bool own = fd > STDERR_FILENO && !d->library;", "bool own = false;", "test_boot_locks.py -k however"),
    _m(4, "a lock of an open file is taken from a child", "rewind/interpose_files.c", "\t\tinterpose_locked(fd, true);\n", "", "test_boot_locks.py -k however"),
    _m(3, "a pipe waits for its other end", "rewind/descriptors.c", "if (S_ISFIFO(st.st_mode)) {", "if (false) {", "test_boot_locks.py -k pipe_with"),
    _m(3, "all requests have one program", "decline.c", "keeps ? NULL : unknown_child()", "NULL", "test_programs.py -k ended"),
    _m(3, "a temporary file may be a link to another", "boot_files.c", "file->kind == TEMPORARY ? lstat(file->name, there) : stat(file->name, there)", "stat(file->name, there)", "test_opened_again.py -k became"),
    _m(3, "rights that a request gives stay", "boot_files.c", "(there->st_mode & 07777) == file->mode", "true", "test_opened_again.py -k gives"),
    _m(3, "what a request wrote stays on the disk", "handle.c", "\t\tboot_files_settle();\n", "", "test_opened_again.py -k ends_with_it"),
    _m(3, "what is cut may be what a request has made", "boot_files.c", "\t\tif (!is_there(file, &there)) {\n\t\t\tlook_at(file, &anew);\n\t\t} else if (", "\t\tif (fstat(file->fd, &there) == 0 && ", "test_opened_again.py -k requests"),
    _m(3, "the parent of workers keeps removed logs", "zygote.c", "\tboot_files_follow();\n", "", "test_opened_again.py -k nobody_keeps"),
    _m(3, "the parent of requests keeps removed logs", "fork.c", "\t\tboot_files_follow();\n", "", "test_opened_again.py -k nobody_keeps"),
    _m(3, "what the boot removes is rewound", "rewind/openings.c", "\tnote_given_up(name, failed);\n", "", "test_opened_again.py -k removed"),
    _m(3, "what the boot moves away is rewound", "rewind/openings.c", "\t\tnote_given_up(old, failed);\n", "", "test_opened_again.py -k moved"),
    _m(3, "what the boot replaces is rewound", "rewind/openings.c", "\t\tnote_given_up(new, failed);\n", "", "test_opened_again.py -k replaced"),
    _m(3, "what somebody has taken is written on", "boot_files.c", "there->st_nlink <= file->links", "true", "test_opened_again.py -k link"),
    _m(3, "whoever rotates a log is the boot", "rewind/openings.c", "changed && one->led && !leads;", "changed && !leads;", "test_opened_again.py -k while_the_boot"),
    _m(3, "what goes through a library is not seen", "rewind/openings.c", "one->otherwise |= is_of_now(one)", "one->otherwise |= false && is_of_now(one)", "test_opened_again.py -k gz"),
    _m(3, "locks that a warm-up request closes are taken", "lifecycle.c", "\t\tdecline_lost_locks();\n", "", "test_opened_otherwise.py -k closes"),
    _m(3, "what a warm-up request empties is the boot's", "rewind/openings.c", "return one->noted && one->late == rewind_control->boot_over;", "return one->noted;", "test_opened_otherwise.py -k warm_up"),
    _m(3, "nobody looks behind locks", "lifecycle.c", "\t\tlocks_take();\n\t\tboot_files_look(BOOT_FILES_UNLOCKED);\n", "\t\tboot_files_look(BOOT_FILES_UNLOCKED);\n\t\tlocks_take();\n", "test_opened_otherwise.py -k lock"),
    _m(3, "files are looked at behind locks", "lifecycle.c", "\t\tboot_files_look(BOOT_FILES_LOCKED);\n\t\tlocks_take();\n", "\t\tlocks_take();\n\t\tboot_files_look(BOOT_FILES_LOCKED);\n", "test_opened_again.py -k lock_file"),
    _m(3, "a file is written by its name", "rewind/interpose_files.c", "\tinterpose_opened_to_write(fd);\n", "", "test_boot_files_around.py -k appended"),
    _m(3, "the comparison writes for visitors", "handle.c", "\t/* Requests of the comparison have written to the same ones. */\n\tboot_files_renew();\n", "", "test_boot_files_around.py -k comparison"),
    _m(3, "what cannot be open twice is shared", "decline.c", "needed > most.rlim_cur", "false", "test_limits.py -k too_small"),
    _m(3, "more files than can be noted", "decline.c", "opened.written_to > MOST_WRITTEN_TO", "false", "test_limits.py -k noted"),
    # 4: locks of the boot
    _m(4, "more semaphores than can be known", "rewind/held.c", "*too_many = c->undo_full;", "*too_many = false;", "test_limits.py -k semaphores"),
    _m(4, "a semaphore of a warm-up request stays", "decline.c", "lost = lost != NULL ? lost : left;", "", "test_boot_locks.py -k semaphore"),
    _m(4, "a closed file stays locked", "rewind/interpose_files.c", "if (d->taken && !d->held && d->copy != 0 && rewind_own_file(d->copy) != 0) {", "if (false) {", "test_boot_locks.py -k closes"),
    _m(4, "what a program inherits is unlocked", "rewind/held.c", "bool shared = (c->any_locked || by_duplicate) && made_children();", "bool shared = false;", "test_boot_locks.py -k inherits"),
    _m(4, "a warm-up request keeps its lock", "warmup.c", "\tlocks_give_back();\n", "", "test_boot_locks.py -k warm_up"),
    _m(4, "a lock that is taken once is imagined", "decline.c", "options.rewind != REWIND_OFF ? locks_taken_once() : NULL;", "NULL;", "test_boot_locks.py -k once"),
    _m(4, "the lock of a worker's start is imagined", "worker_start.c", "\tlocks_lend();", "\tlocks_give_back();", "test_boot_locks.py -k began_with"),
    _m(4, "two shared locks are one", "locks.c", "locks[i].inode == locks[of].inode && held(locks[i].fd) == 0", "locks[i].inode == locks[of].inode", "test_boot_locks.py -k shared"),
    _m(4, "a declined boot ends without its locks", "again.c", "if (locks_lost() == NULL) {", "if (false) {", "test_boot_locks.py -k declined"),
    _m(4, "locks are imagined", "locks.c", "void locks_take(void)\n{", "void locks_take(void)\n{\n\treturn;", "test_boot_locks.py"),
    _m(4, "locks are never lent", "locks.c", "void locks_lend(void)\n{", "void locks_lend(void)\n{\n\treturn;", "test_boot_locks.py"),
    _m(4, "locks are held beyond the answer", "lifecycle.c", "\tunclean = cleanup_request(", "\toutput_finish(false);\n\thy_release(&request.exchange);\n\tunclean = cleanup_request(", "test_order.py"),
    _m(2, "a database is never replaced", "sqlite.c", "\thy_is_current = is_current;\n", "", "test_sqlite.py -k replaced"),
    _m(2, "links to databases are not looked at", "sqlite.c", "if (connections[i].given != NULL) {", "if (false) {", "test_sqlite.py -k link"),
    _m(2, "a database is replaced before the boot is over", "sqlite.c", "if (has_moved(connections[i].is, one->name)) {", "if (false) {", "test_sqlite.py -k while_the"),
    _m(2, "pages of a database are believed", "sqlite.c", "\t\t\tlibrary.release_memory(connections[i].is);\n", "", "test_sqlite.py -k in_place"),
    _m(8, "what is read ahead repeats", "zygote.c", "\trandomness_drop_read_ahead();\n", "", "test_randomness.py -k ahead"),
    _m(8, "what a worker reads ahead repeats", "snapshot.c", "\trandomness_drop_read_ahead();\n", "", "test_randomness.py -k starts"),
    _m(7, "umask and directory are a warm-up request's", "warmup.c", "\tboot_restore_process();\n", "", "test_endings.py -k leaves_no"),
    _m(1, "the boot starts a session by itself", "boot.c", "\t\tsession->auto_start = 0;\n", "", "test_endings.py -k by_themselves"),
    _m(1, "a session of the boot is nobody's", "decline.c", "options.rewind == REWIND_OFF ? NULL : boot_left_session()", "NULL", "test_endings.py -k session"),
    _m(1, "a boot that is given up leaves its shutdown functions", "again.c", "\t\t\tshutdown_end_boot(warmup_has_begun());\n", "", "test_endings.py -k given_up"),
    _m(6, "the other end hears nothing", "rewind/interpose_files.c", "if (d->peer && !c->ending && !d->library && !d->datagram && d->copy != 0 && !connections_keeps(fd)) {", "if (false) {", "test_boot_sockets.py -k hears"),
    _m(6, "destructors of the boot cost workers", "lifecycle.c", "\t\trewind_request_ends();\n", "", "test_boot_sockets.py -k close_at"),
    _m(4, "semaphores are imagined", "decline.c", ".left = keeps ? NULL : locks_left(),", ".left = NULL,", "test_boot_locks.py -k semaphore"),
    _m(4, "locks are taken in any order", "locks.c", "qsort(locks, count, sizeof *locks, by_time);", "", "test_boot_locks.py -k order"),
    # 5: strays
    _m(5, "a stray is a worker", "stray.h", "return stray_mark != NULL && *stray_mark == 0;", "return false;", "test_strays.py"),
    _m(5, "a stray outlives the server", "stray.c", "fcntl(server_end, F_SETFL, O_ASYNC | O_NONBLOCK);", "", "test_strays.py -k ends_with_the_server"),
    _m(5, "a stray is left", "stray.c", "if (!has_forked || blindly) {", "if (true) {", "test_strays.py"),
    _m(5, "a stray without a descriptor is left", "stray.c", "blindly |= family_reader < 0;", "", "test_strays.py -k without_parent"),
    _m(5, "a stray of a stray has no descriptor to end by", "stray.c", "\t\tclose(server_end);\n", "", "test_strays.py -k ends_with_the_server"),
    # 6: sockets of the boot
    _m(6, "options stay", "rewind/interpose_sockets.c", "\tusing(fd);\n\treturn (int)syscall(SYS_setsockopt", "\treturn (int)syscall(SYS_setsockopt", "test_boot_sockets.py"),
    _m(6, "an address stays", "rewind/interpose_sockets.c", "\tusing(fd);\n\tif (connections_watching()) {\n\t\tconnections_opened(fd);\n\t}\n\treturn (int)syscall(SYS_connect", "\treturn (int)syscall(SYS_connect", "test_boot_sockets.py"),
    _m(6, "a datagram costs a worker", "rewind/interpose_sockets.c", "if (!d->datagram) {", "if (true) {", "test_boot_sockets.py"),
    _m(6, "answers are for anybody", "rewind/process.c", "if (c->any_sent && descriptors_was_any_answered()) {", "if (false && descriptors_was_any_answered()) {", "test_boot_sockets.py"),
    # 7: the process
    _m(7, "files of /proc are written", "rewind/interpose_files.c", "fs.f_type == PROC_SUPER_MAGIC", "fs.f_type == 0", "test_process_files.py"),
    _m(7, "the name stays", "rewind/process.c", "SYS2(SYS_prctl, PR_SET_NAME, c->name);", "", "test_process_files.py"),
    # 8: what repeats
    _m(8, "engines repeat", "randomness.c", "\t\tif (!engines[i].given) {\n\t\t\tseed_engine", "\t\tif (false) {\n\t\t\tseed_engine", "test_randomness.py"),
    _m(8, "seeds of the boot are lost", "randomness.c", "engine->given = given;", "engine->given = false;", "test_randomness.py"),
    _m(8, "gmp repeats", "randomness.c", "\tif (!gmp_seeded) {", "\tif (false) {", "test_randomness.py"),
    _m(8, "mt_rand repeats", "randomness.c", "RANDOM_G(mt19937_seeded) = mt_given;", "RANDOM_G(mt19937_seeded) = true;", "test_randomness.py"),
    _m(8, "libc repeats", "rewind/generators.c", "if (!random_seeded && rewind_control != NULL) {", "if (false) {", "test_randomness.py"),
    _m(8, "UUIDs repeat", "rewind/generators.c", "if (c == NULL || !c->uuid_numbered) {", "if (true) {", "test_randomness.py"),
    _m(8, "libraries do not notice the fork", "rewind/generators.c", "return told ? pid : pid + NOBODY;", "return pid;", "test_randomness.py"),
    _m(8, "nobody hears of what stays", "handle.c", "\tfrozen_tell();\n", "", "test_randomness.py -k log_names"),
    # 9: clocks
    _m(9, "opcache's clock stands", "clocks.c", "\topcache_set_clock((time_t)sapi_get_request_time());\n", "", "test_clocks.py"),
    _m(9, "a full opcache stays full", "opcache.c", "return wants_restart = true;", "return false;", "test_clocks.py"),
    _m(9, "real paths run out", "clocks.c", "if (path_ttl <= 0 ||", "if (true || path_ttl <= 0 ||", "test_clocks.py"),
    _m(9, "the stat cache stays", "clocks.c", "\tphp_clear_stat_cache(0, NULL, 0);\n", "", "test_clocks.py"),
    _m(9, "APCu's clock stands", "clocks.c", "\t\t*apcu_clock = 0;\n", "", "test_clocks.py"),
    # 0: hayate_on_worker_start(), and children that nobody is told of
    _m(0, "encodings of a step are lost", "worker_start.c", "\tboot_keep_encodings_of_step();\n", "", "test_worker_start.py -k encodings"),
    _m(0, "shutdown functions of a step are lost", "worker_start.c", "\tshutdown_keep_of_step();\n", "", "test_worker_start.py -k shutdown"),
    _m(0, "a silent server holds up a step", "worker_start.c", "\trewind_patience_ms = PATIENCE_MS;\n", "", "test_worker_start.py -k ten_seconds"),
    _m(0, "timers of a step go on", "worker_start.c", "\trewind_set_timer(ITIMER_REAL, &(struct itimerval){0});\n", "", "test_worker_start.py -k timers"),
    _m(0, "a child of a step is a worker", "worker_start.c", "\t\t\tstray_end();", "\t\t\t(void)0;", "test_worker_start.py -k child_of_it"),
    _m(0, "a boot that ignores its children costs a worker", "rewind/signals.c", "bool untold = of_boot.handler", "bool untold = false && of_boot.handler", "test_worker_start.py -k ignores"),
    # 10: where it does not run
    _m(10, "a misplaced call is believed", "decline.c", "tracked ? rewind_misplaced() : NULL;", "NULL;", "test_point.py"),
    _m(10, "an unreadable file is not spoken of", "zygote.c", "if (error == 0) {", "if (error != 12345) {", "test_point.py"),
    # 11, 12: hot pages
    _m(11, "one write makes a page hot", "rewind/rewind.c", "#define STREAK_HOT 4", "#define STREAK_HOT 0", "test_hot_pages.py"),
    _m(12, "a page that cools down is not protected", "rewind/rewind.c", "(i % LOOKS != slice || c->tracking == REWIND_SOFT_DIRTY)", "(i % LOOKS != slice)", KERNEL),
    # behind the tracking
    _m(0, "calls by number are not seen", "rewind/interpose_calls.c", "if (c != NULL && !harmless(", "if (false && c != NULL && !harmless(", "test_by_name.py"),
    _m(0, "a child loses another file", "rewind/connections.c", "if (d == NULL || !d->lost) {", "if (true) {", "test_warm_connections.py -k child_after"),
    _m(0, "MariaDB is not told to forget", "rewind/connections_mysql.c", "sizeof one->brief, &at, COM_RESET_CONNECTION,", "sizeof one->brief, &at, COM_PING,", "test_frameworks.py -k kept"),
    _m(0, "a child has a copy of the connection", "rewind/connections.c", "\t\t\tsilence(d->copy);\n", "", "test_warm_connections.py -k each_descriptor"),
    _m(0, "memory that a fork loses is not looked for", "zygote.c", "!worker && rewind_loses_memory()", "false", "test_by_name.py"),
]

#: What random programs have to be about to find it, where that can be said.
KINDS: dict[str, str] = {
    "no functions registered once": "object",
    "no functions of the boot": "shutdown",
    "streams of the boot stay open": "gz",
    "objects of the boot are pinned": "weak weakmap",
    "nobody looks at residue": "buffer",
    "a boot that is given up just dies": "buffer sqlite lock",
    "a singleton's function is given up": "object",
    "cookies and archives are lost": "cookies",
    "statements stay half-read": "sqlite statement sqlite3",
    "a busy boot is rewound": "halfway",
    "a lost lock is trusted": "wal",
    "files are shared by forks": "stray reader many directory",
    "256 positions": "many",
    "a rotated log is written on": "appender",
    "the comparison writes for visitors": "spilled",
    "locks are held beyond the answer": "lock guarded sqlite",
    "semaphores are imagined": "semaphore",
    "a stray is a worker": "stray object reader",
    "a stray is left": "stray object",
    "a stray without a descriptor is left": "stray object",
    "a stray of a stray has no descriptor to end by": "stray object",
    "a datagram costs a worker": "datagram udp",
    "answers are for anybody": "datagram",
    "gmp repeats": "gmp",
    "seeds of the boot are lost": "engine seeded",
    "mt_rand repeats": "seeded",
    "libc repeats": "libc",
    "UUIDs repeat": "uuid",
    "libraries do not notice the fork": "libgcrypt object_id",
    "the stat cache stays": "stat",
    "real paths run out": "object",
    "APCu's clock stands": "object",
    "one write makes a page hot": "heavy",
    "calls by number are not seen": "process",
    "a child loses another file": "mariadb redis",
    "MariaDB is not told to forget": "mariadb",
    "a child has a copy of the connection": "mariadb postgresql redis",
}


def build(directory: pathlib.Path, server: pathlib.Path, mutation: Mutation | None) -> pathlib.Path:
    """A server with the host as changed; the path of its program. Raises ValueError if the mutation fits no more."""
    copy = directory / "host"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(HOST, copy, ignore=shutil.ignore_patterns("tests"))  # with what is built: make builds the rest
    if mutation is not None:
        for file, old, new in ((mutation.file, mutation.old, mutation.new), *mutation.also):
            path = copy / file
            text = path.read_text()
            if text.count(old) != 1:
                raise ValueError(f"{mutation.name}: {file} has {text.count(old)} places like {old!r}")
            path.write_text(text.replace(old, new))
    command = ["make", "-s", "-C", str(copy), f"PHP={PHP}", "WARNINGS="]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise ValueError(f"{mutation.name if mutation else 'no mutation'}: {done.stderr[-2000:]}")
    program = directory / "bin" / "hayate"
    shutil.rmtree(directory / "bin", ignore_errors=True)
    shutil.copytree(server.parent / "boot", directory / "bin" / "boot")
    shutil.copy2(server, program)
    shutil.copy2(copy / "build" / f"hayate-php{PHP}", directory / "bin")
    return program


def failed(program: pathlib.Path, tests: str, kinds: str = "") -> str | None:
    """The first test that fails, or after how many random programs; None: all passed. Raises RuntimeError if they cannot be run.

    `kinds` are those that random programs are about; none: all.
    """
    first, *more = tests.split()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", first, *more]
    env = {**os.environ, "HAYATE_BIN": str(program)}
    env |= {"HAYATE_TORTURE_PROGRAMS": os.environ.get("HAYATE_TORTURE_PROGRAMS", "48"), "HAYATE_TORTURE_SHOWN": "0"}
    env |= {"HAYATE_TORTURE_KINDS": kinds} if kinds else {}
    here = REPOSITORY / "tests"
    try:
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False, timeout=900)
    except subprocess.TimeoutExpired:
        return "(no end)"
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout[-2000:])
    played = re.search(r"HAYATE_TORTURE_SEED=(\d+), after (\d+) programs", done.stdout)
    if played:
        what = re.search(r"^E? *mode (\w+: .{0,100})", done.stdout[played.end() :], re.MULTILINE)
        return f"after {played[2]} programs{' of ' + kinds if kinds else ''} (seed {played[1]}; {what[1] if what else ''})"
    found = re.search(r"^(?:FAILED|ERROR) \S*?([\w.]+::\S+)", done.stdout, re.MULTILINE)
    return None if done.returncode == 0 else found[1] if found else "(unnamed)"


def failed_on_kernel(host: pathlib.Path, package: str) -> str | None:
    """As `failed`, for the rewinder's own program of hot pages in an emulated machine."""
    env = {**os.environ, "HAYATE_HOST": str(host), "HAYATE_PROGRAMS": "rewind_hot", "HAYATE_HOT": "cooling"}
    done = subprocess.run([REPOSITORY / "tests/rewind/kernel", package], env=env, capture_output=True, text=True, check=False, timeout=3600)
    if not re.search(r"^rewind_hot: [01]", done.stdout, re.MULTILINE):
        raise RuntimeError((done.stdout + done.stderr)[-2000:])
    return None if done.returncode == 0 else "rewind_hot cooling"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--torture", action="store_true", help="the random programs as well")
    parser.add_argument("--only-torture", action="store_true", help="the random programs and nothing else")
    parser.add_argument("--its-kinds", action="store_true", help="of random programs those that KINDS names")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    server = pathlib.Path(os.environ.get("HAYATE_BIN") or REPOSITORY / "target/release/hayate").resolve()
    chosen = [m for m in MUTATIONS if not arguments.words or any(word in m.name for word in arguments.words)]
    unfound = unfit = 0
    with tempfile.TemporaryDirectory(prefix="hayate-mutations-") as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)  # servers run as another user
        print("| point | taken out | found by | by random programs |\n| --- | --- | --- | --- |", flush=True)
        for mutation in chosen:
            kernel = os.environ.get("HAYATE_KERNEL") if mutation.tests == KERNEL else None
            if mutation.tests == KERNEL and kernel is None:
                print(f"left out: {mutation.name}: HAYATE_KERNEL names no kernel's package", file=sys.stderr, flush=True)
                continue
            try:
                program = build(directory, server, mutation)
                found = random = None
                if kernel:
                    found = failed_on_kernel(directory / "host", kernel)
                elif not arguments.only_torture:
                    found = failed(program, f"rewind/{mutation.tests}")
                if kernel is None and (arguments.torture or arguments.only_torture):
                    random = failed(program, "torture", KINDS.get(mutation.name, "") if arguments.its_kinds else "")
            except (ValueError, RuntimeError) as error:
                print(error, file=sys.stderr, flush=True)
                unfit += 1
                continue
            unfound += found is None and random is None
            by_test = f"`{found}`" if found else "" if arguments.only_torture else "**nothing**"
            by_chance = random or ("no" if kernel is None and (arguments.torture or arguments.only_torture) else "")
            print(f"| {mutation.point} | {mutation.name} | {by_test} | {by_chance} |", flush=True)
    return 2 if unfit else 1 if unfound else 0


if __name__ == "__main__":
    sys.exit(main())
