//! An answer that is read line by line, as it comes.

use reqwest::Response;

use super::{ClientError, Place};

/// Lines of an answer.
#[derive(Debug)]
pub struct Lines {
    response: Response,
    place: Place,
    /// What has come of the lines that are next.
    come: Vec<u8>,
    /// Where the next line begins in it.
    at: usize,
    over: bool,
}

impl Lines {
    pub(super) const fn new(response: Response, place: Place) -> Self {
        Self { response, place, come: Vec::new(), at: 0, over: false }
    }

    /// The next line without its end; nothing once the answer is over.
    ///
    /// # Errors
    /// The answer broke off.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, ClientError> {
        // What has no end yet was looked through before.
        let mut looked = self.at;
        loop {
            if let Some(length) = self.come[looked..].iter().position(|byte| *byte == b'\n') {
                let line = self.at..looked + length;
                self.at = line.end + 1;
                return Ok(Some(&self.come[line]));
            }
            self.come.drain(..self.at);
            self.at = 0;
            looked = self.come.len();
            if self.over {
                return Ok(None);
            }
            let lost = |source| ClientError::Lost { place: self.place.clone(), source: Some(source) };
            match self.response.chunk().await.map_err(lost)? {
                Some(chunk) => self.come.extend_from_slice(&chunk),
                // A line that is not ended broke off with the daemon.
                None => {
                    self.over = true;
                    if !self.come.is_empty() {
                        return Err(ClientError::Lost { place: self.place.clone(), source: None });
                    }
                }
            }
        }
    }
}
