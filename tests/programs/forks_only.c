/* Runs its arguments in a child, with no call of malloc before: forks_only PROGRAM ARGUMENTS. */
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        execv(argv[1], argv + 1);
        _exit(127);
    }
    return argc > 1 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
