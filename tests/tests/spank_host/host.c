/*
 * A stand-in for srun, sbatch, slurmd and slurmstepd: loads a SPANK plugin as they do and calls its hooks.
 *
 * What it is and how badly it behaves comes from variables:
 *   HOST_API      major number of slurm_api_version()
 *   HOST_CONTEXT  value of spank_context(): 1 srun, 2 slurmstepd, 3 sbatch, 4 slurmd, 5 prolog
 *   HOST_ITEMS    ok, fail (spank_get_item refuses), null (argv is NULL), none (argc 0), huge (100000 words)
 *   HOST_STEP     step number (default: the batch script)
 *   HOST_SET_RC, HOST_PREPEND_RC, HOST_REGISTER_RC   answers of those functions
 *   HOST_ENV      fail (spank_getenv refuses), big (no buffer is ever large enough)
 *   HOST_OPTIONS  options that the user gave: name=value, one a line; a name alone has NULL as its value
 *   HOST_HOSTILE  if set, every option's callback is called with values that nobody should send
 *   HOST_NULL     if set, hooks get a NULL handle and a NULL vector with a count
 *   JOB_x         variable x of the job's environment
 * It prints one line for each call and its answer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option { char *name, *arginfo, *usage; int has_arg, val; int (*cb)(int, const char *, int); };
static struct option options[64];
static int option_count;
static int dummy_handle;
static char **task_argv;
static int task_argc;
static const char *inside = "load";

static long number(const char *name, long otherwise)
{
	const char *text = getenv(name);
	return text ? strtol(text, NULL, 0) : otherwise;
}

static int is(const char *name, const char *value)
{
	const char *text = getenv(name);
	return text && !strcmp(text, value);
}

/* Slurm's functions, as srun and slurmstepd export them. */
long slurm_api_version(void) { return number("HOST_API", 38) << 16; }
unsigned spank_context(void) { return number("HOST_CONTEXT", 2); }

#define LOGGER(name) void name(const char *format, ...) \
{ va_list ap; va_start(ap, format); printf(#name ": "); vprintf(format, ap); printf("\n"); va_end(ap); }
LOGGER(slurm_error)
LOGGER(slurm_info)
LOGGER(slurm_verbose)
LOGGER(slurm_debug)
LOGGER(slurm_spank_log)

unsigned spank_option_register(void *sp, struct option *o)
{
	if (number("HOST_REGISTER_RC", 0))
		return number("HOST_REGISTER_RC", 0);
	if (!sp || option_count == 64)
		return 3001;
	options[option_count] = *o;
	options[option_count].name = strdup(o->name);
	options[option_count].usage = strdup(o->usage);
	option_count++;
	return 0;
}

unsigned spank_get_item(void *sp, unsigned item, ...)
{
	va_list ap;
	if (!sp)
		return 3001;
	if (is("HOST_ITEMS", "fail"))
		return 3009;
	va_start(ap, item);
	switch (item) {
	case 3:
		*va_arg(ap, uint32_t *) = number("HOST_STEP", 0xfffffffbL);
		break;
	case 9:
		*va_arg(ap, int *) = is("HOST_ITEMS", "none") ? 0 : task_argc;
		*va_arg(ap, char ***) = is("HOST_ITEMS", "null") ? NULL : task_argv;
		break;
	default:
		va_end(ap);
		return 3001;
	}
	va_end(ap);
	return 0;
}

unsigned spank_getenv(void *sp, const char *name, char *buffer, int size)
{
	char key[256];
	const char *value;
	if (!sp || is("HOST_ENV", "fail"))
		return 3001;
	if (is("HOST_ENV", "big")) {
		memset(buffer, 'x', size);
		return 3005;
	}
	snprintf(key, sizeof key, "JOB_%s", name);
	if (!(value = getenv(key)))
		return 3004;
	if (strlen(value) >= (size_t) size)
		return 3005;
	strcpy(buffer, value);
	return 0;
}

unsigned spank_setenv(void *sp, const char *name, const char *value, int overwrite)
{
	(void) sp; (void) overwrite;
	printf("set %s=%s\n", name, value);
	return number("HOST_SET_RC", 0);
}

unsigned spank_unsetenv(void *sp, const char *name)
{
	(void) sp;
	printf("unset %s\n", name);
	return number("HOST_SET_RC", 0);
}

#ifndef WITHOUT_PREPEND
unsigned spank_prepend_task_argv(void *sp, int argc, const char *argv[])
{
	int i;
	(void) sp;
	if (number("HOST_PREPEND_RC", 0))
		return number("HOST_PREPEND_RC", 0);
	printf("prepended");
	for (i = 0; i < argc; i++)
		printf(" [%s]", argv[i]);
	printf("\n");
	return argv[argc] ? 3001 : 0;
}
#endif

/* What a Slurm command does. */
static void answer(const char *what, int rc) { printf("answer %s %d\n", what, rc); fflush(stdout); }
static void at_exit(void) { printf("end %s\n", inside); fflush(stdout); }

static void hook(void *plugin, const char *name, int argc, char **argv)
{
	int (*function)(void *, int, char **) = (int (*)(void *, int, char **)) dlsym(plugin, name);
	if (!function) {
		printf("absent %s\n", name);
		return;
	}
	inside = name;
	if (getenv("HOST_NULL"))
		answer(name, function(NULL, 5, NULL));
	else
		answer(name, function(&dummy_handle, argc, argv));
}

static void callback(struct option *o, int val, const char *value, int remote)
{
	inside = "callback";
	answer("callback", o->cb(val, value, remote));
}

static void hostile(int remote)
{
	static char large[(1 << 20) + 1];
	const char *values[] = { NULL, "", "(null)", large, "\xff\xfe\x80", "%s%n%s%n%d", "a\nb\x1b[2J", "../../etc", "off",
				 "99999999999999999999", "-1", "' ; echo \"$HOME\" `id`" };
	int i;
	size_t v;
	memset(large, 'x', sizeof large - 1);
	for (i = 0; i < option_count; i++)
		for (v = 0; v < sizeof values / sizeof *values; v++)
			callback(&options[i], options[i].val, values[v], remote);
	if (option_count) {
		callback(&options[0], -1, "energy", remote);
		callback(&options[0], INT_MAX, large, remote);
		callback(&options[0], INT_MIN, NULL, remote);
	}
}

static void given(int remote)
{
	char *text = getenv("HOST_OPTIONS"), *line, *rest = text ? strdup(text) : NULL;
	int i;
	while ((line = strsep(&rest, "\n"))) {
		char *value = strchr(line, '=');
		if (value)
			*value++ = 0;
		for (i = 0; i < option_count; i++)
			if (!strcmp(options[i].name, line))
				callback(&options[i], options[i].val, value, remote);
	}
}

int main(int argc, char **argv)
{
	unsigned context = spank_context();
	int remote = context == 2, i;
	void *plugin;

	if (argc < 2)
		return 3;
	setvbuf(stdout, NULL, _IOLBF, 0);
	atexit(at_exit);
	if (!(plugin = dlopen(argv[1], RTLD_LAZY))) {
		printf("dlopen: %s\n", dlerror());
		return 3;
	}
	printf("version %x\n", *(unsigned *) dlsym(plugin, "plugin_version"));
	printf("name %s type %s\n", (char *) dlsym(plugin, "plugin_name"), (char *) dlsym(plugin, "plugin_type"));

	task_argc = is("HOST_ITEMS", "huge") ? 100000 : 2;
	task_argv = calloc(task_argc + 1, sizeof *task_argv);
	for (i = 0; i < task_argc; i++)
		task_argv[i] = strdup(i ? "an argument of the job" : "/spool/slurm_script");

	hook(plugin, "slurm_spank_init", argc - 2, argv + 2);
	if (getenv("HOST_HOSTILE"))
		hostile(remote);
	given(remote);
	hook(plugin, "slurm_spank_init_post_opt", argc - 2, argv + 2);
	hook(plugin, "slurm_spank_user_init", argc - 2, argv + 2);
	if (remote) {
		hook(plugin, "slurm_spank_task_init", argc - 2, argv + 2);
		if (strcmp(task_argv[0], "/spool/slurm_script")) {
			char script[65536];
			FILE *file = fopen(task_argv[0], "r");
			size_t size = file ? fread(script, 1, sizeof script - 1, file) : 0;
			script[size] = 0;
			printf("program %s\n%s", task_argv[0], script);
		}
	}
	hook(plugin, "slurm_spank_exit", argc - 2, argv + 2);
	inside = "done";
	return 0;
}
