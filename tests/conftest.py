"""For all tests. Whoever started them may ignore signals (a shell's background job, `nohup`), and a program inherits
that; what the tests start has to heed them."""

import signal

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
