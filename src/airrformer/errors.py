"""The one exception for a mistake that the user can mend."""


class UserError(Exception):
    """A mistake of the user's: one clear sentence that names the place and the value and says what to do.

    The command line prints it without a traceback and exits with 2; everything else is a fault of ours and exits 1.
    """
